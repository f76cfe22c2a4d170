"""`forewarn scenario`: what may happen to a program, played on a service of its own.

What a scenario is, and how it is played, is `testing.scenarios`; what is shown meanwhile is
`scenario_display.py`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer

from forewarn.cli.commands.record import from_
from forewarn.cli.commands.service_options import need_server
from forewarn.cli.output import Json, as_json, fail, say, say_text, table
from forewarn.core.time import MAX_SPEED, MIN_SPEED
from forewarn.support.text import parse_duration

if TYPE_CHECKING:
    from forewarn.testing.scenarios import Result, Scenario
    from forewarn.testing.scenarios.engine.program import ProgramRunner

app = typer.Typer(no_args_is_help=True)

CANNOT = 2  # the exit code where nothing could be played; 1: it was, and failed
INTERRUPTED = 130  # by Ctrl-C, SIGTERM or SIGHUP
BY_HAND = 3600.0  # seconds in which somebody has to ask, where no command does
PICTURES = (".svg", ".html", ".txt")

Which = Annotated[str, typer.Argument(help="Name of a scenario, or its file.", metavar="SCENARIO")]


@app.command("list")
def list_(json: Json = False) -> None:
    """List the scenarios that come with forewarn."""
    need_server()
    from forewarn.testing import scenarios

    found = [scenarios.find(name) for name in scenarios.names()]
    if json:
        as_json([{"scenario": one.name, "about": one.about, "as": one.under_test} for one in found])
        return
    rows = [(one.name, ", ".join(one.under_test), one.about) for one in found]
    table(("SCENARIO", "AS", "ABOUT"), rows)


@app.command()
def show(scenario: Which) -> None:
    """Print a scenario file, for example as a template for your own."""
    need_server()
    say_text(_found(scenario, 1).text)


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files."""
    need_server()
    from forewarn.testing.scenarios import schema_text

    typer.echo(schema_text(), nl=False)


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Scenario files.")],
) -> None:
    """Check scenario files. Errors are reported with file and line."""
    need_server()
    from forewarn.testing.scenarios import ScenarioError, load

    wrong = 0
    for file in files:
        try:
            found = load(file)
        except ScenarioError as error:
            wrong += 1
            say(f"forewarn: {error}", err=True)
            continue
        lines, expected = len(found.steps), len(found.expectations)
        say(f"{file}: scenario {found.name}: {lines} on the timeline, {expected} expected")
    if wrong:
        raise typer.Exit(1)


@app.command()
def run(
    scenario: Which,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Program under test, and its arguments.", metavar="-- CMD"),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option(help="'virtual': as fast as the program can follow (default); or 'real'."),
    ] = None,
    speed: Annotated[
        float | None, typer.Option(help="Use real time, with durations divided by this number.")
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option("--as", help="Machine to run as, or several separated by commas."),
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Run the program once for every machine of the fleet.")
    ] = False,
    netns: Annotated[
        bool,
        typer.Option(
            "--netns", help="Use a network namespace with the service at 169.254.169.254."
        ),
    ] = False,
    fake_time: Annotated[
        bool,
        typer.Option(
            "--fake-time", help="Set the program's clock to the service's (needs libfaketime)."
        ),
    ] = False,
    wait: Annotated[
        str | None, typer.Option(help="Time to wait for the first poll. Default: 30s.")
    ] = None,
    react: Annotated[
        str,
        typer.Option(help="Real time that the program gets at every change to react."),
    ] = "0s",
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Continue if the program fails.")
    ] = False,
    timeline: Annotated[
        Path | None, typer.Option(help="Write a timeline to this file: .svg, .html or .txt.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Record all requests and responses in this file.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Write a JUnit XML report to this file.")
    ] = None,
    json: Json = False,
) -> None:
    """Run a program against a scenario. Exits with 1 if it did not do what was expected.

    The program finds the endpoint's URL in FOREWARN_METADATA. Without a program, the scenario is
    run for any client that polls the addresses that are printed."""
    pace = _pace(clock, speed, fake_time)
    patience = None if wait is None else _seconds("--wait", wait)
    reaction = _seconds("--react", react)
    if timeline is not None and timeline.suffix.lower() not in PICTURES:
        raise typer.BadParameter(f"'{timeline.name}' should end in .svg, .html or .txt")
    for file in (timeline, junit):
        _check_place(file)
    if (netns or fake_time or each) and not command:
        raise typer.BadParameter("--netns, --fake-time and --each need a program: -- CMD")
    need_server()
    from forewarn.cli.commands.scenario_display import stage
    from forewarn.service.engine.ledger import Hung
    from forewarn.testing.errors import RefusedByService
    from forewarn.testing.kit.run_scenario import run_scenario
    from forewarn.testing.scenarios.engine.program import CannotRun
    from forewarn.testing.scenarios.runner import FIRST_POLL_WITHIN

    found = _spoken_for(_found(scenario, CANNOT), as_, each)
    with _also_when_told_to_end(), stage(found, quiet=json) as seen:
        program: ProgramRunner | None = None
        try:
            if command:
                from forewarn.testing.scenarios.engine.program import ProgramRunner

                program = ProgramRunner(
                    command,
                    found.under_test,
                    netns=netns,
                    fake_time=fake_time,
                    keep_going=keep_going,
                    aside=json,
                    show=seen.output,
                    note=seen.note,
                )
            result = run_scenario(
                found,
                speed=pace,
                record=record,
                wait=patience
                if patience is not None
                else (FIRST_POLL_WITHIN if command else BY_HAND),
                react=reaction,
                program=program,
                on_ready=lambda service: seen.begin(service, by_hand=not command),
                on_step=seen.step,
            )
        except (CannotRun, RefusedByService, Hung) as error:
            _cannot(str(error))
        except OSError as error:
            _cannot(f"{error.filename or 'the service cannot start'}: {error.strerror}")
        except KeyboardInterrupt:
            seen.note("interrupted; nothing was judged")
            raise typer.Exit(INTERRUPTED) from None
    files: list[tuple[Path, str]] = []
    if timeline is not None:
        files.append((timeline, seen.drawing(timeline, result.verdict)))
    if junit is not None:
        files.append((junit, result.junit()))
    unwritten = [says for file, text in files if (says := _write(file, text))]
    _tell(result, json)
    if unwritten:
        fail("; ".join(unwritten))
    if not result.ok:
        raise typer.Exit(1)


@contextmanager
def _also_when_told_to_end() -> Iterator[None]:
    """Whoever ends us, or closes our terminal, means the command, too, which has a session of its
    own. What was ignored before (nohup) still is."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = [
        one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) != signal.SIG_IGN
    ]
    before = {one: signal.signal(one, interrupt) for one in told}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _tell(result: Result, json: bool) -> None:
    if json:
        as_json(result.as_dict())
        return
    for line in (*str(result.verdict).splitlines(), "", *str(result).splitlines()):
        say(line)


def _pace(clock: str | None, speed: float | None, fake_time: bool) -> float | None:
    """By how much durations are divided in real time; None: the clock is virtual."""
    if clock not in ("real", "virtual", None):
        raise typer.BadParameter("--clock is 'real' or 'virtual'", param_hint="--clock")
    if clock == "virtual" and speed is not None:
        raise typer.BadParameter("--speed cannot be combined with a virtual clock")
    if speed is not None and not MIN_SPEED <= speed <= MAX_SPEED:
        raise typer.BadParameter(
            f"the speed must be a number from {MIN_SPEED:g} to {MAX_SPEED:g}", param_hint="--speed"
        )
    pace = speed if speed is not None else 1.0 if clock == "real" else None
    if fake_time and pace is not None:
        raise typer.BadParameter("--fake-time needs a virtual clock")
    return pace


def _seconds(option: str, said: str) -> float:
    try:
        return parse_duration(said) / 1e6
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _found(name: str, code: int) -> Scenario:
    from forewarn.testing.scenarios import ScenarioError, find

    try:
        return find(name)
    except ScenarioError as error:
        _cannot(str(error), code)


def _spoken_for(scenario: Scenario, said: str | None, each: bool) -> Scenario:
    """The scenario, with the machines that were asked for."""
    names = [machine.name for machine in scenario.fleet.machines]
    if each and said:
        raise typer.BadParameter("--each cannot be combined with --as")
    if each:
        return msgspec.structs.replace(scenario, under_test=tuple(names))
    if said is None:
        return scenario
    from forewarn.support.suggest import instead_of

    wanted = tuple(dict.fromkeys(name.strip() for name in said.split(",")))
    for name in wanted:
        if name not in names:
            raise typer.BadParameter(
                f"there is no machine '{name}'; {instead_of(name, names)}", param_hint="--as"
            )
    return msgspec.structs.replace(scenario, under_test=wanted)


def _check_place(file: Path | None) -> None:
    """Before anything is played; what came of it should not be lost for a slip."""
    if file is None:
        return
    if file.is_dir():
        raise typer.BadParameter(f"{file} is a directory; pass the path of a file")
    if not file.parent.is_dir():
        raise typer.BadParameter(f"there is no directory {file.parent}; create it first")


def _write(path: Path, text: str) -> str:
    """Why it could not be written; empty if it was."""
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _cannot(says: str, code: int = CANNOT) -> NoReturn:
    say(f"forewarn: {says}", err=True)
    raise typer.Exit(code)


app.command("from")(from_)  # last, as one reads them
