"""`forewarn scenario run`: run a program against one scenario, or against all that are shipped.

Scenarios are played by `testing.scenarios`; the display during a run is in `scenario_display.py`.
"""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec
import typer

from forewarn.cli import completion
from forewarn.cli.commands.service_options import need_extra
from forewarn.cli.output import Json, fail, parsed_seconds, print_json, say, writable_place
from forewarn.core.time import MAX_SPEED, MIN_SPEED

if TYPE_CHECKING:
    from forewarn.cli.commands.scenario_display import Display
    from forewarn.testing.scenarios import Result, Scenario
    from forewarn.testing.scenarios.engine.program import ProgramRunner

SHELLS = ("sh", "bash", "dash", "zsh", "ksh")  # which expand what is written with a $
NOT_RUN = 2  # exit code if the scenario could not be run; 1: it was run, and failed
INTERRUPTED = 130  # exit code after Ctrl-C, SIGTERM or SIGHUP
POLL_TIMEOUT = 15.0  # seconds to wait for a client that polls; some back off for 5 s after an error
FIRST_POLL_WITHOUT_PROGRAM = 3600.0  # seconds to wait for the first poll if no program is run
TIMELINE_SUFFIXES = (".html", ".txt")


def run(
    scenario: Annotated[
        str | None,
        typer.Argument(
            help="Name of a scenario, or its file.",
            metavar="SCENARIO",
            autocompletion=completion.scenarios,
            show_default=False,
        ),
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Program under test, and its arguments.", metavar="-- CMD..."),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option(
            "--all", help="Run every scenario that comes with forewarn, as in --all -- CMD."
        ),
    ] = False,
    clock: Annotated[
        str | None,
        typer.Option(
            help="The service's clock. A virtual one (default) moves as fast as the program can"
            " follow.",
            autocompletion=completion.one_of("real", "virtual"),
        ),
    ] = None,
    speed: Annotated[
        float | None, typer.Option(help="Use real time, with durations divided by this number.")
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="Machine to run as, or several separated by commas.",
            autocompletion=completion.machines_of_scenario,
        ),
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
    timeout: Annotated[
        str | None,
        typer.Option(
            help="Real time after which a scenario that is not over is stopped, and has failed."
            " Default: none."
        ),
    ] = None,
    react: Annotated[
        str,
        typer.Option(
            help="Real time that the program gets for each event of its machine, to approve it"
            " or to report that it is ready."
        ),
    ] = "1s",
    stop_before: Annotated[
        list[str] | None,
        typer.Option(
            help="When the program acts on its events, as the time before NotBefore: a virtual"
            " clock also stops there, and gives it time to react. Can be repeated.",
        ),
    ] = None,
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
            " fails, the program was still busy; its output says with what. No shell is used.",
            metavar="CMD",
        ),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Continue if the program fails.")
    ] = False,
    timeline: Annotated[
        Path | None,
        typer.Option(help="Write a timeline to this file: .html or .txt.", callback=writable_place),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Record all requests and responses in this file.", callback=writable_place
        ),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(help="Write a JUnit XML report to this file.", callback=writable_place),
    ] = None,
    json: Json = False,
) -> None:
    """Run a program against a scenario. Exits with 1 if it did not do what was expected.

    The program finds the endpoint's URL in FOREWARN_METADATA. Without a program, the scenario is
    run for any client that polls the addresses that are printed."""
    real_speed = _real_speed(clock, speed, fake_time)
    first_poll_within = parsed_seconds("--wait", wait)
    reaction = parsed_seconds("--react", react)
    moments = [parsed_seconds("--stop-before", moment) for moment in stop_before or ()]
    time_limit = parsed_seconds("--timeout", timeout)
    if timeline is not None and timeline.suffix.lower() not in TIMELINE_SUFFIXES:
        raise typer.BadParameter(f"'{timeline.name}' should end in .html or .txt")
    for file in (timeline, junit):
        _check_writable(file)
    check = _busy_check(busy_check)
    if all_:
        # What follows `--all --` is the program, of which the first word was taken for a scenario.
        command = [word for word in (scenario, *(command or [])) if word is not None]
    if (netns or fake_time or each or impact or check) and not command:
        raise typer.BadParameter(
            "--netns, --fake-time, --each, --impact and --busy-check need a program: -- CMD"
        )
    need_extra("test")
    from forewarn.cli.commands.scenario_display import print_result, print_summary
    from forewarn.testing.scenarios.runner import FIRST_POLL_WITHIN

    scenarios = _all_scenarios(command or []) if all_ else [_named(scenario)]
    chosen = [_with_machines(found, as_, each) for found in scenarios]
    _check_count(chosen)
    if first_poll_within is None:
        first_poll_within = FIRST_POLL_WITHIN if command else FIRST_POLL_WITHOUT_PROGRAM

    def make_program(played: Scenario, display: Display) -> ProgramRunner | None:
        if not command:
            return None
        from forewarn.testing.scenarios.engine.program import ProgramRunner

        return ProgramRunner(
            command,
            played.under_test,
            netns=netns,
            fake_time=fake_time,
            keep_going=keep_going,
            impact=impact,
            busy_check=check,
            aside=json,
            show=display.output,
            note=display.note,
        )

    results: list[Result] = []
    problems: list[str] = []
    for played in chosen:
        result, display = _play(
            played,
            make_program,
            quiet=json,
            go_on=all_,
            print_urls=not command,
            speed=real_speed,
            record=_own_file(record, played, all_),
            first_poll_timeout=first_poll_within,
            reaction_time=reaction,
            stop_before=moments,
            time_limit=time_limit,
        )
        results.append(result)
        if (drawing := _own_file(timeline, played, all_)) is not None:
            problems.append(_write(drawing, display.drawing(drawing, result.verdict)))
        if not json:
            print_result(result, brief=all_)
    if junit is not None:
        problems.append(_write(junit, _junit(results)))
    if json:
        print_json(_all_as_dict(results) if all_ else results[0].as_dict())
    elif all_:
        print_summary(results)
    if written := [problem for problem in problems if problem]:
        fail("; ".join(written))
    if not all(result.ok for result in results):
        raise typer.Exit(1)


def _play(
    scenario: Scenario,
    make_program: Callable[[Scenario, Display], ProgramRunner | None],
    *,
    quiet: bool,
    go_on: bool,
    print_urls: bool,
    **details: Any,
) -> tuple[Result, Display]:
    """Play one scenario. With `go_on`, one that the service cannot play is a failed one."""
    from forewarn.cli.commands.scenario_display import make_display
    from forewarn.service.engine.ledger import Hung
    from forewarn.testing.errors import RefusedError
    from forewarn.testing.kit.run_scenario import run_scenario
    from forewarn.testing.scenarios import Result
    from forewarn.testing.scenarios.engine.program import CannotRun

    with _interrupt_on_signals(), make_display(scenario, quiet=quiet) as display:
        try:
            result = run_scenario(
                scenario,
                program=make_program(scenario, display),
                on_ready=lambda service: display.begin(service, print_urls=print_urls),
                on_step=display.step,
                timeout=POLL_TIMEOUT,
                **details,
            )
        except (RefusedError, Hung) as error:
            if not go_on:
                _fail(str(error))
            result = Result(scenario=scenario.name, about=scenario.about, problems=(str(error),))
        except CannotRun as error:
            _fail(str(error))
        except OSError as error:
            _fail(f"{error.filename or 'the service cannot start'}: {error.strerror}")
        except KeyboardInterrupt:
            display.note("interrupted; the scenario has no result")
            raise typer.Exit(INTERRUPTED) from None
    return result, display


def _named(name: str | None) -> Scenario:
    if name is None:
        raise typer.BadParameter(
            "name a scenario, or pass --all; 'forewarn scenario list' lists them"
        )
    return find_or_fail(name, NOT_RUN)


def _all_scenarios(command: Sequence[str]) -> list[Scenario]:
    from forewarn.testing.scenarios import find, names

    if not command:
        raise typer.BadParameter("--all needs a program: --all -- CMD")
    if command[0] in names():
        raise typer.BadParameter(
            f"--all runs every scenario, so none can be named; remove '{command[0]}'"
        )
    return [find(name) for name in names()]


def _check_count(scenarios: Sequence[Scenario]) -> None:
    """Refuse to run too many commands at once before any scenario is run."""
    from forewarn.testing.scenarios.engine.program import MAX_COMMANDS

    for scenario in scenarios:
        if (count := len(scenario.under_test)) > MAX_COMMANDS:
            most = f"at most {MAX_COMMANDS} commands run at once, not {count}"
            _fail(f"scenario {scenario.name}: {most}")


def _own_file(path: Path | None, scenario: Scenario, several: bool) -> Path | None:
    """Return the file for one scenario: of several, each has its name added to that of the file."""
    if path is None or not several:
        return path
    return path.with_name(f"{path.stem}-{scenario.name}{path.suffix}")


def _all_as_dict(results: Sequence[Result]) -> dict[str, Any]:
    return {
        "ok": all(result.ok for result in results),
        "scenarios": [result.as_dict() for result in results],
    }


def _junit(results: Sequence[Result]) -> str:
    from forewarn.testing.scenarios.result import junit_of_all

    return results[0].junit() if len(results) == 1 else junit_of_all(results)


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


def _real_speed(clock: str | None, speed: float | None, fake_time: bool) -> float | None:
    """Return the number by which durations are divided in real time; None: a virtual clock."""
    if clock not in ("real", "virtual", None):
        raise typer.BadParameter(f"'{clock}' is not 'real' or 'virtual'", param_hint="--clock")
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
    variable = next((word for word in words if "$" in word), None)
    if variable is not None and Path(words[0]).name not in SHELLS:
        raise typer.BadParameter(
            f"no shell is used, so '{variable}' would not be expanded; write sh -c '…'",
            param_hint="--busy-check",
        )
    return words


def find_or_fail(name: str, code: int) -> Scenario:
    """Find a scenario by its name or file; if it cannot be used, print why, and exit."""
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
