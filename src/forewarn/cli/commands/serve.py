"""`forewarn serve`: load the settings, take over systemd's sockets, and run the service."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from forewarn.cli.commands.service_options import (
    ConfigFile,
    Control,
    FleetFile,
    Metadata,
    Record,
    State,
    flags_of,
    need_extra,
    need_linux,
    run_service,
)
from forewarn.cli.output import fail, fail_all, say
from forewarn.support.text import listing

if TYPE_CHECKING:
    from forewarn.node import Config


def serve(
    config: ConfigFile = None,
    fleet: FleetFile = None,
    metadata: Metadata = None,
    control: Control = None,
    state: State = None,
    record: Record = None,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Upgrade the state file if an older version wrote it.")
    ] = False,
) -> None:
    """Run the service. Machines are identified by their source address.

    With the setting 'nodes', they are answered by 'forewarn node' on their hosts.
    """
    need_linux("forewarn serve", "for development, use forewarn dev")
    # SIGHUP means to reload the settings, which are about to be read anyway.
    signal.signal(signal.SIGHUP, lambda *_: None)
    need_extra("server")
    from forewarn.node import CannotListen
    from forewarn.node import settings as s
    from forewarn.node.listening.socket_activation import (
        HandedOverSockets,
        check_control,
        not_handed_over,
        use_handed_over,
    )

    flags = flags_of(fleet, metadata, control, state, record)

    def load() -> tuple[s.LoadedSettings, Config]:
        loaded, node_config = s.load(config, os.environ, flags)
        node_config = msgspec.structs.replace(node_config, migrate=migrate)
        anywhere = loaded.settings.allow_other_addresses
        if "control" in loaded.origins:
            check_control(node_config.control, handed_over)
        return loaded, use_handed_over(node_config, handed_over, anywhere)

    try:
        handed_over = HandedOverSockets.from_environment(os.environ)
        loaded, node_config = load()
    except s.SettingsError as error:
        fail_all(error.problems)
    except CannotListen as error:
        fail(str(error))
    for address in not_handed_over(s.config(loaded, with_fleet=False), handed_over):
        say(
            f"note: metadata lists {address}, but none of the sockets that were handed over is"
            " bound to it, so guests get no answer there; enable a socket unit for it, or remove it"
            " from the settings",
            err=True,
        )
    machines = node_config.fleet.machines if node_config.fleet else []
    names = [machine.name for machine in machines if not machine.addresses]
    if names:
        typer.echo(
            f"note: these machines have no address and cannot poll: {listing(names)}", err=True
        )
    run_service(node_config, lambda _: None, loaded, load)
