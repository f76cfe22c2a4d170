"""`forewarn driver`: run the driver process of a host, which acts on its machines as control asks
it to; check its settings; or get its certificate with a token."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.commands.service_options import (
    JoinedControl,
    JoinedHost,
    need_extra,
    need_linux,
    run_event_loop,
)
from forewarn.cli.output import Json, fail, fail_all
from forewarn.cli.settings_check import print_findings

app = typer.Typer(invoke_without_command=True)

DEFAULT_CONFIG = Path("/etc/forewarn/driver.toml")


@app.callback()
def driver(
    context: typer.Context,
    config: Annotated[
        Path,
        typer.Option("--config", envvar="FOREWARN_DRIVER_CONFIG", help="Settings file (TOML)."),
    ] = DEFAULT_CONFIG,
) -> None:
    """Run the driver process of this host, which acts on its machines as the service decides."""
    context.obj = config
    if context.invoked_subcommand is not None:
        return
    need_linux("forewarn driver", "it runs on the hosts of machines")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # settings need a restart
    need_extra("driver")
    from forewarn.node.daemon.run_driver import run_driver
    from forewarn.node.driver_process import DriverUnusable
    from forewarn.node.listening.sockets import CannotListen
    from forewarn.node.settings.driver_process import load_driver
    from forewarn.node.settings.model import SettingsError

    try:
        run_event_loop(run_driver(load_driver(config)))
    except SettingsError as error:
        fail_all(error.problems)
    except (CannotListen, DriverUnusable) as error:
        fail(str(error))


@app.command()
def check(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="Settings file (TOML). Default: as for 'forewarn driver'.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check the settings against this host. Exits with 1 if they cannot be used."""
    need_linux("forewarn driver", "it runs on the hosts of machines")
    need_extra("driver")
    from forewarn.node.preflight.driver_process import driver_findings
    from forewarn.node.settings.driver_process import load_driver

    path = config or context.obj
    print_findings(lambda: driver_findings(load_driver(path), path), json)


@app.command()
def join(
    context: typer.Context,
    control: JoinedControl,
    token: Annotated[str, typer.Argument(help="Token from 'forewarn host enroll --driver'.")],
    host: JoinedHost = "",
    directory: Annotated[
        Path, typer.Option(help="Directory of the process, for its key and its certificate.")
    ] = Path("/var/lib/forewarn-driver"),
    start: Annotated[bool, typer.Option(help="Enable and start the unit of the package.")] = True,
) -> None:
    """Get the certificate of this host's driver process with a token, and write the settings.

    'forewarn host enroll --driver' prints the whole line. The key is made here and stays here.
    """
    need_linux("forewarn driver", "it runs on the hosts of machines")
    need_extra("node")  # which has what makes keys
    from forewarn.cli.commands import node_join

    node_join.join(context.obj, directory, control, token, host, start=start, driver=True)
