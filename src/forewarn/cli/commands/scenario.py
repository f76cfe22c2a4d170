"""`forewarn scenario`: list, show, check and run scenarios, each on a service of its own.

Scenarios are implemented in `testing.scenarios`; the display during a run is in
`scenario_display.py`.
"""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer

from forewarn.cli import completion
from forewarn.cli.commands.record import from_
from forewarn.cli.commands.service_options import need_extra
from forewarn.cli.output import Json, fail, print_json, print_table, say, say_text
from forewarn.core.time import MAX_SPEED, MIN_SPEED, SECOND
from forewarn.support.text import parse_duration

if TYPE_CHECKING:
    from forewarn.testing.scenarios import Result, Scenario
    from forewarn.testing.scenarios.engine.program import ProgramRunner

app = typer.Typer(no_args_is_help=True)

NOT_RUN = 2  # exit code if the scenario could not be run; 1: it was run, and failed
INTERRUPTED = 130  # exit code after Ctrl-C, SIGTERM or SIGHUP
FIRST_POLL_WITHOUT_PROGRAM = 3600.0  # seconds to wait for the first poll if no program is run
TIMELINE_SUFFIXES = (".svg", ".html", ".txt")

ScenarioName = Annotated[
    str,
    typer.Argument(
        help="Name of a scenario, or its file.",
        metavar="SCENARIO",
        autocompletion=completion.scenarios,
    ),
]


@app.command("list")
def list_(json: Json = False) -> None:
    """List the scenarios that come with forewarn."""
    need_extra("test")
    from forewarn.testing import scenarios

    built_in = [scenarios.find(name) for name in scenarios.names()]
    if json:
        print_json([{"scenario": s.name, "about": s.about, "as": s.under_test} for s in built_in])
        return
    rows = [(s.name, ", ".join(s.under_test), s.about) for s in built_in]
    print_table(("SCENARIO", "AS", "ABOUT"), rows)


@app.command()
def show(scenario: ScenarioName) -> None:
    """Print a scenario file, for example as a template for your own."""
    need_extra("test")
    say_text(_find(scenario, 1).text)


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files."""
    need_extra("test")
    from forewarn.testing.scenarios import schema_text

    typer.echo(schema_text(), nl=False)


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Scenario files.")],
) -> None:
    """Check scenario files. All errors are reported, with file and line."""
    need_extra("test")
    from forewarn.testing.scenarios import ScenarioError, load

    failed = False
    for file in files:
        try:
            scenario = load(file)
        except ScenarioError as error:
            failed = True
            for problem in error.problems:
                say(f"forewarn: {problem}", err=True)
            continue
        steps, expectations = len(scenario.steps), len(scenario.expectations)
        counts = f"steps: {steps}, expectations: {expectations}"
        say(f"{file}: scenario {scenario.name}: {counts}")
    if failed:
        raise typer.Exit(1)


@app.command()
def run(
    scenario: ScenarioName,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Program under test, and its arguments.", metavar="-- CMD..."),
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
    impact: Annotated[
        bool,
        typer.Option(
            "--impact",
            help="Do to the program what happens to its machine: stop it for a Freeze, kill it"
            " for the others, and start it again after a Reboot or Redeploy.",
        ),
    ] = False,
    busy_check: Annotated[
        str | None,
        typer.Option(
            help="Command that is run when an event is about to be carried out on a machine. If it"
            " fails, the program was still busy; its output says with what.",
            metavar="CMD",
        ),
    ] = None,
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
    real_speed = _real_speed(clock, speed, fake_time)
    first_poll_within = None if wait is None else _seconds("--wait", wait)
    reaction = _seconds("--react", react)
    if timeline is not None and timeline.suffix.lower() not in TIMELINE_SUFFIXES:
        raise typer.BadParameter(f"'{timeline.name}' should end in .svg, .html or .txt")
    for file in (timeline, junit):
        _check_writable(file)
    check = _busy_check(busy_check)
    if (netns or fake_time or each or impact or check) and not command:
        raise typer.BadParameter(
            "--netns, --fake-time, --each, --impact and --busy-check need a program: -- CMD"
        )
    need_extra("test")
    from forewarn.cli.commands.scenario_display import make_display
    from forewarn.service.engine.ledger import Hung
    from forewarn.testing.errors import RefusedError
    from forewarn.testing.kit.run_scenario import run_scenario
    from forewarn.testing.scenarios.engine.program import CannotRun
    from forewarn.testing.scenarios.runner import FIRST_POLL_WITHIN

    if first_poll_within is None:
        first_poll_within = FIRST_POLL_WITHIN if command else FIRST_POLL_WITHOUT_PROGRAM
    chosen = _with_machines(_find(scenario, NOT_RUN), as_, each)
    with _interrupt_on_signals(), make_display(chosen, quiet=json) as display:
        program: ProgramRunner | None = None
        try:
            if command:
                from forewarn.testing.scenarios.engine.program import ProgramRunner

                program = ProgramRunner(
                    command,
                    chosen.under_test,
                    netns=netns,
                    fake_time=fake_time,
                    keep_going=keep_going,
                    impact=impact,
                    busy_check=check,
                    aside=json,
                    show=display.output,
                    note=display.note,
                )
            result = run_scenario(
                chosen,
                speed=real_speed,
                record=record,
                first_poll_timeout=first_poll_within,
                reaction_time=reaction,
                program=program,
                on_ready=lambda service: display.begin(service, print_urls=not command),
                on_step=display.step,
            )
        except (CannotRun, RefusedError, Hung) as error:
            _fail(str(error))
        except OSError as error:
            _fail(f"{error.filename or 'the service cannot start'}: {error.strerror}")
        except KeyboardInterrupt:
            display.note("interrupted; nothing was judged")
            raise typer.Exit(INTERRUPTED) from None
    files: list[tuple[Path, str]] = []
    if timeline is not None:
        files.append((timeline, display.drawing(timeline, result.verdict)))
    if junit is not None:
        files.append((junit, result.junit()))
    problems = [problem for file, text in files if (problem := _write(file, text))]
    _print_result(result, json)
    if problems:
        fail("; ".join(problems))
    if not result.ok:
        raise typer.Exit(1)


@contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, so that the program under test, which has a
    session of its own, is stopped too. Signals that are ignored (nohup) stay ignored."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = ("SIGTERM", "SIGHUP", "SIGBREAK")  # each system has two of them
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, interrupt) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _print_result(result: Result, json: bool) -> None:
    if json:
        print_json(result.as_dict())
        return
    from forewarn.verdict.rendering import details, headline

    verdict = result.verdict
    if result.ok or not verdict.ok:  # above a failed scenario, nothing says that all is well
        say(headline(verdict))
    for line in ("\n".join(details(verdict)), "", *str(result).splitlines()):
        say_text(line)


def _real_speed(clock: str | None, speed: float | None, fake_time: bool) -> float | None:
    """Return the number by which durations are divided in real time; None: a virtual clock."""
    if clock not in ("real", "virtual", None):
        raise typer.BadParameter("--clock must be 'real' or 'virtual'", param_hint="--clock")
    if clock == "virtual" and speed is not None:
        raise typer.BadParameter("--speed cannot be combined with a virtual clock")
    if speed is not None and not MIN_SPEED <= speed <= MAX_SPEED:
        raise typer.BadParameter(
            f"the speed must be a number from {MIN_SPEED:g} to {MAX_SPEED:g}", param_hint="--speed"
        )
    real_speed = speed if speed is not None else 1.0 if clock == "real" else None
    if fake_time and real_speed is not None:
        raise typer.BadParameter("--fake-time needs a virtual clock")
    return real_speed


def _busy_check(command: str | None) -> list[str]:
    """Return the words of the command."""
    try:
        words = shlex.split(command or "")
    except ValueError as error:
        raise typer.BadParameter(f"{command}: {error}", param_hint="--busy-check") from error
    if command is not None and not words:
        raise typer.BadParameter("it is empty; pass a command", param_hint="--busy-check")
    return words


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration(text) / SECOND
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _find(name: str, code: int) -> Scenario:
    from forewarn.testing.scenarios import ScenarioError, find

    try:
        return find(name)
    except ScenarioError as error:
        for problem in error.problems[:-1]:
            say(f"forewarn: {problem}", err=True)
        _fail(error.problems[-1], code)


def _with_machines(scenario: Scenario, machines: str | None, each: bool) -> Scenario:
    """Return the scenario with the machines that the program is to be run as."""
    names = [machine.name for machine in scenario.fleet.machines]
    if each and machines:
        raise typer.BadParameter("--each cannot be combined with --as")
    if each:
        return msgspec.structs.replace(scenario, under_test=tuple(names))
    if machines is None:
        return scenario
    from forewarn.support.suggest import instead_of

    chosen = tuple(dict.fromkeys(name.strip() for name in machines.split(",")))
    for name in chosen:
        if name not in names:
            raise typer.BadParameter(
                f"unknown machine '{name}'; {instead_of(name, names)}", param_hint="--as"
            )
    return msgspec.structs.replace(scenario, under_test=chosen)


def _check_writable(file: Path | None) -> None:
    """Check an output file before the run, so that the result is not lost afterwards."""
    if file is None:
        return
    if file.is_dir():
        raise typer.BadParameter(f"{file} is a directory; pass the path of a file")
    if not file.parent.is_dir():
        raise typer.BadParameter(f"the directory {file.parent} does not exist; create it first")


def _write(path: Path, text: str) -> str:
    """Write a file, and return why it could not be written, or ""."""
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _fail(message: str, code: int = NOT_RUN) -> NoReturn:
    say(f"forewarn: {message}", err=True)
    raise typer.Exit(code)


app.command("from")(from_)  # listed last in --help
