"""`forewarn node`: load the settings, take over systemd's sockets, and run the node of a host; or
check the settings, print which machines it answers, for the packet filter, or enroll the host."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from forewarn.cli.commands.service_options import (
    JoinedControl,
    JoinedHost,
    Metadata,
    Record,
    need_extra,
    need_linux,
    run_event_loop,
)
from forewarn.cli.output import Json, fail, fail_all
from forewarn.cli.settings_check import print_findings

if TYPE_CHECKING:
    from forewarn.node.settings.host_node import LoadedNodeSettings


app = typer.Typer(invoke_without_command=True)

NodeConfig = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Settings file (TOML). Default: as for 'forewarn node'.",
        show_default=False,
    ),
]


@app.callback()
def node(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", envvar="FOREWARN_NODE_CONFIG", help="Settings file (TOML)."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Name of this host in the fleet. Default: the name of the computer."),
    ] = None,
    control: Annotated[
        list[str] | None,
        typer.Option(
            help="Address, or path on this host, at which the service accepts nodes. Repeatable."
        ),
    ] = None,
    metadata: Metadata = None,
    record: Record = None,
) -> None:
    """Run the node of this host, which answers its machines as the service decides."""
    flags = {"host": host, "control": control, "metadata": metadata, "record": record}
    context.obj = config, flags
    if context.invoked_subcommand is not None:
        return
    need_linux("forewarn node", "it runs on the hosts of machines")
    # SIGHUP means to reload the settings, which are about to be read anyway.
    signal.signal(signal.SIGHUP, lambda *_: None)
    need_extra("node")
    from forewarn.node.daemon.run_host_node import run_host_node
    from forewarn.node.host_node import NodeUnusable
    from forewarn.node.listening.socket_activation import HandedOverSockets, use_handed_over
    from forewarn.node.listening.sockets import CannotListen
    from forewarn.node.settings.host_node import load_node
    from forewarn.node.settings.model import SettingsError

    def load() -> LoadedNodeSettings:
        loaded = load_node(config, os.environ, flags)
        anywhere = loaded.settings.allow_other_addresses
        endpoint = use_handed_over(loaded.config.endpoint, handed_over, anywhere)
        return msgspec.structs.replace(
            loaded, config=msgspec.structs.replace(loaded.config, endpoint=endpoint)
        )

    try:
        handed_over = HandedOverSockets.from_environment(os.environ)
        run_event_loop(run_host_node(load(), load))
    except SettingsError as error:
        fail_all(error.problems)
    except (CannotListen, NodeUnusable) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'cannot start'}: {error.strerror}")


@app.command()
def check(context: typer.Context, config: NodeConfig = None, json: Json = False) -> None:
    """Check the settings against this host. Exits with 1 if they cannot be used."""
    need_linux("forewarn node", "it runs on the hosts of machines")
    need_extra("node")
    from forewarn.node.preflight.host_node import node_findings
    from forewarn.node.settings.host_node import load_node

    settings, flags = context.obj
    path = config or settings
    print_findings(lambda: node_findings(load_node(path, os.environ, flags), path), json)


@app.command()
def rules(
    context: typer.Context,
    ports: Annotated[
        Path,
        typer.Argument(
            help="File of ports: which machine is at which port, with which MAC address.",
            show_default=True,
        ),
    ] = Path("/etc/forewarn/ports"),
    learned: Annotated[
        bool,
        typer.Option(
            "--learned", help="Print the addresses that were seen on watched ports, for that file."
        ),
    ] = False,
    config: NodeConfig = None,
) -> None:
    """Print a transaction for 'nft -f -' that ties the machines of this host to their ports."""
    need_extra("node")
    from forewarn.cli.commands import node_rules

    settings, flags = context.obj
    node_rules.rules(config or settings, flags, ports, learned=learned)


@app.command()
def join(
    context: typer.Context,
    control: JoinedControl,
    token: Annotated[str, typer.Argument(help="Token from 'forewarn host enroll'.")],
    host: JoinedHost = "",
    directory: Annotated[
        Path, typer.Option(help="Directory of the node, for its key and its certificate.")
    ] = Path("/var/lib/forewarn-node"),
    start: Annotated[bool, typer.Option(help="Enable and start the units of the package.")] = True,
    rules: Annotated[
        bool,
        typer.Option(
            "--rules",
            help="Also install the network rules of the package. Needs /etc/forewarn/ports.",
        ),
    ] = False,
    config: NodeConfig = None,
) -> None:
    """Get the certificate of this host's node with a token, write the settings, and start the node.

    'forewarn host enroll' prints the whole line. The key is made here and stays here.
    """
    need_linux("forewarn node", "it runs on the hosts of machines")
    need_extra("node")
    from forewarn.cli.commands import node_join

    settings, _ = context.obj
    path = config or settings or Path("/etc/forewarn/node.toml")
    node_join.join(path, directory, control, token, host, start=start, rules=rules)
