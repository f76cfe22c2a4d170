"""`forewarn driver`: run the driver process of a host, which acts on its machines as control asks
it to; check its settings; or get its certificate with a token."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.commands.service_options import need_extra, need_linux, run_event_loop
from forewarn.cli.output import Json, fail, fail_all, say
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
    control: Annotated[
        str, typer.Argument(help="Addresses of the service for nodes, separated by commas.")
    ],
    token: Annotated[str, typer.Argument(help="Token from 'forewarn host enroll --driver'.")],
    host: Annotated[
        str,
        typer.Option(
            help="Name of this host in the fleet. Default: as the token says, or the name of the"
            " computer.",
        ),
    ] = "",
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
    import asyncio

    from forewarn.node.config import Address
    from forewarn.node.join import DRIVER_UNITS, CannotJoin, Files, Token, ask, start_units
    from forewarn.node.join import check as check_joined
    from forewarn.node.preflight.driver_process import driver_findings
    from forewarn.node.settings.driver_process import load_driver
    from forewarn.node.settings.model import SettingsError

    config: Path = context.obj
    files = Files(config, directory, driver=True)
    try:
        addresses = [Address.parse(text) for text in control.split(",")]
        parsed = Token.parse(token)
        if problem := files.problem():
            fail(problem)
        joined = asyncio.run(ask(addresses, parsed, host, driver=True))
        check_joined(joined, files)
        files.write(joined)
    except (CannotJoin, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'cannot write'}: {error.strerror}")
    say(f"this is host '{joined.issued.host}' now; the settings of its driver are in {config}")
    try:
        findings = list(driver_findings(load_driver(config), config))
    except SettingsError as error:
        fail_all(error.problems)
    for finding in findings:
        say(f"warning: {finding.message}", err=True)
    if not start:
        return
    if problem := start_units(DRIVER_UNITS):
        fail(f"the process was not started: {problem}; start it with 'forewarn driver'")
    say("the process is started; 'forewarn host list' shows whether it is connected")
