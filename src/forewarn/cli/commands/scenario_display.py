"""What is shown while a scenario is played: on a terminal a living picture with the program's
words above it, else one line for every change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import typer

from forewarn.cli.output import say
from forewarn.support.text import in_words, visible
from forewarn.testing.kit.service import Service
from forewarn.testing.scenarios import Scenario
from forewarn.testing.scenarios.file.fleets import in_a_line
from forewarn.testing.timeline import Lanes, html, live, svg, text
from forewarn.verdict.verdict import Verdict

FRAMES = 8  # a second


class Display:
    """One line for every change, to standard error."""

    output: Any = None  # a command writes where we do

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._begun: float | None = None
        self.lanes = Lanes(self._changed)

    def begin(self, service: Service, *, by_hand: bool) -> None:
        """The service is there, and nothing has happened yet."""
        trace = service.node.trace
        assert trace is not None
        service.call(trace.add_sink, self.lanes.add)
        self._begun = service.node.writer.now().at / 1e6
        self.note(f"scenario {self._scenario.name}: {in_a_line(self._scenario.fleet)}")
        if by_hand:
            self._welcome(service)

    def _welcome(self, service: Service) -> None:
        """For whoever is to ask, by hand or by a program that was started elsewhere."""
        for name in self._scenario.under_test:
            self.note(f"ask as {name}: {service.url(name)}, and it begins")
        urls = {
            "metadata": service.url(self._scenario.under_test[0]),
            "control": service.control_url,
        }
        typer.echo(f"ready {msgspec.json.encode(urls).decode()}")

    def step(self, says: str) -> None:
        """A line of the timeline has happened."""
        del says  # what came of it is told by the trace

    def note(self, says: str) -> None:
        say(says, err=True)

    def _changed(self, at: float, says: str) -> None:
        if self._begun is not None:
            self.note(f"{in_words(round((at - self._begun) * 1e6)):>12}  {says}")

    def drawing(self, path: Path, verdict: Verdict) -> str:
        title = f"scenario {self._scenario.name}"
        match path.suffix.lower():
            case ".svg":
                return svg(self.lanes, title=title)
            case ".html":
                return html(self.lanes, verdict=verdict, title=title)
            case _:
                return text(self.lanes, title=title)


class LineDisplay(Display):
    """For programs that read what comes of it."""

    def note(self, says: str) -> None:
        del says


class LiveDisplay(Display):
    """A picture that grows; whatever is said stands above it."""

    def __init__(self, scenario: Scenario, console: Any) -> None:
        super().__init__(scenario)
        self._console = console
        self._service: Service | None = None

    def output(self, machine: str, line: str) -> None:
        shown = line if len(self._scenario.under_test) == 1 else f"{machine}: {line}"
        self.note(shown)

    def note(self, says: str) -> None:
        from rich.text import Text

        self._console.print(Text(visible(says)))

    def _changed(self, at: float, says: str) -> None:
        """It is in the picture."""

    def begin(self, service: Service, *, by_hand: bool) -> None:
        super().begin(service, by_hand=by_hand)
        self._service = service

    def __rich__(self) -> Any:
        if self._service is not None:
            self.lanes.passed(self._service.node.writer.now().at / 1e6)
        return live(self.lanes, title=f"scenario {self._scenario.name}")


@contextmanager
def stage(scenario: Scenario, *, quiet: bool) -> Iterator[Display]:
    if quiet:
        yield LineDisplay(scenario)
        return
    if not sys.stdout.isatty():
        yield Display(scenario)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console()
    shown = LiveDisplay(scenario, console)
    with Live(get_renderable=shown.__rich__, console=console, refresh_per_second=FRAMES):
        yield shown
