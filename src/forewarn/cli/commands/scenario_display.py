"""The display during `forewarn scenario run`: on a terminal a live timeline with the program's
output above it, otherwise a line for every change; and the results afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import typer

from forewarn.cli.output import print_table, say, say_text
from forewarn.support import extras
from forewarn.support.text import in_words, visible
from forewarn.testing.kit.service import Service
from forewarn.testing.scenarios import Result, Scenario
from forewarn.testing.scenarios.file.fleets import in_a_line
from forewarn.testing.timeline import Lanes, html, live, text
from forewarn.verdict.rendering import details, headline
from forewarn.verdict.verdict import Verdict

REFRESHES = 8  # per second


class Display:
    """Prints a line for every change to standard error."""

    output: Any = None  # the program under test writes to our standard output and error

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._started: float | None = None
        self.lanes = Lanes(self._changed)

    def begin(self, service: Service, *, print_urls: bool) -> None:
        """Start displaying a service on which nothing has happened yet."""
        trace = service._session.node.trace
        assert trace is not None
        service._session.call(trace.add_sink, self.lanes.add)
        self._started = service._session.node.writer.now().at / 1e6
        self.note(f"scenario {self._scenario.name}: {in_a_line(self._scenario.fleet)}")
        if print_urls:
            self._print_urls(service)

    def _print_urls(self, service: Service) -> None:
        """Print the URLs of the machines, for a client that is started elsewhere."""
        for name in self._scenario.under_test:
            self.note(f"poll as {name} to begin: {service.url(name)}")
        urls = {"metadata": service.url(self._scenario.under_test[0])}
        if extras.installed("server"):
            urls["control"] = service.control_url
        typer.echo(f"ready {msgspec.json.encode(urls).decode()}")

    def step(self, description: str) -> None:
        """Handle a step of the scenario. Its effects are displayed from the trace instead."""
        del description

    def note(self, text: str) -> None:
        say(text, err=True)

    def _changed(self, at: float, text: str) -> None:
        if self._started is not None:
            self.note(f"{in_words(round((at - self._started) * 1e6)):>12}  {text}")

    def drawing(self, path: Path, verdict: Verdict) -> str:
        title = f"scenario {self._scenario.name}"
        if path.suffix.lower() == ".html":
            return html(self.lanes, verdict=verdict, title=title)
        return text(self.lanes, title=title)


class QuietDisplay(Display):
    """Prints nothing, for --json."""

    def note(self, text: str) -> None:
        del text


class LiveDisplay(Display):
    """Shows a live timeline, with notes and the program's output above it."""

    def __init__(self, scenario: Scenario, console: Any) -> None:
        super().__init__(scenario)
        self._console = console
        self._service: Service | None = None

    def output(self, machine: str, line: str) -> None:
        self.note(line if len(self._scenario.under_test) == 1 else f"{machine}: {line}")

    def note(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(visible(text)))

    def _changed(self, at: float, text: str) -> None:
        """Do nothing: the change is drawn in the timeline."""

    def begin(self, service: Service, *, print_urls: bool) -> None:
        super().begin(service, print_urls=print_urls)
        self._service = service

    def __rich__(self) -> Any:
        if self._service is not None:
            self.lanes.passed(self._service._session.node.writer.now().at / 1e6)
        return live(self.lanes, title=f"scenario {self._scenario.name}")


@contextmanager
def make_display(scenario: Scenario, *, quiet: bool) -> Iterator[Display]:
    if quiet:
        yield QuietDisplay(scenario)
        return
    if not sys.stdout.isatty():
        yield Display(scenario)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console()
    display = LiveDisplay(scenario, console)
    with Live(get_renderable=display.__rich__, console=console, refresh_per_second=REFRESHES):
        yield display


def print_result(result: Result, *, brief: bool) -> None:
    """Print the verdict and the result; with `brief`, of one that has passed the result alone."""
    verdict = result.verdict
    if brief and result.ok:
        say_text(str(result))
        return
    if result.ok or not verdict.ok:  # above a failed scenario, nothing says that all is well
        say(headline(verdict))
    for line in ("\n".join(details(verdict)), "", *str(result).splitlines()):
        say_text(line)


def print_summary(results: Sequence[Result]) -> None:
    """Print a line for each scenario, and how many have failed."""
    rows = []
    for result in results:
        met = sum(item.ok for item in result.expectations)
        rows.append(
            (
                result.scenario,
                "passed" if result.ok else "failed",
                f"{met} of {len(result.expectations)}",
                "" if result.ok else result.failures[0],
            )
        )
    say("")
    print_table(("SCENARIO", "RESULT", "MET", "FIRST FAILURE"), rows)
    failed = sum(not result.ok for result in results)
    say("")
    say(f"{len(results)} scenarios: {len(results) - failed} passed, {failed} failed")
