"""`forewarn record`: what a real endpoint says, written down. `forewarn scenario from`: recordings
and pasted documents as scenarios. What is asked and how it is read is `testing.recording`."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forewarn.cli.output import fail, notes, say, say_text
from forewarn.core.time import SECOND
from forewarn.support.text import parse_duration
from forewarn.wire.versions import BY_NAME, NEWEST

if TYPE_CHECKING:
    from forewarn.testing.recording.reader import Recording
    from forewarn.testing.recording.recorder import Ending, Recorder

MIN_EVERY = 0.05  # seconds between two polls
STDIN = Path("-")


def record(
    url: Annotated[
        str | None, typer.Argument(help="URL of the endpoint. Default: http://169.254.169.254")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Output file. Appends if it exists.")
    ] = Path("recording.jsonl"),
    every: Annotated[str, typer.Option(help="Interval between polls.")] = "1s",
    for_: Annotated[
        str | None, typer.Option("--for", help="Stop after this time. Default: on Ctrl-C.")
    ] = None,
    until_quiet: Annotated[
        bool,
        typer.Option("--until-quiet", help="Stop when an event has been listed and none is left."),
    ] = False,
    version: Annotated[str, typer.Option(help="API version to request.")] = NEWEST.name,
    machine: Annotated[
        str | None, typer.Option(help="Name of this machine. Default: as the endpoint says.")
    ] = None,
    timeout: Annotated[
        str, typer.Option(help="Time to wait for a response; at least 130s for the first one.")
    ] = "10s",
    all_: Annotated[
        bool, typer.Option("--all", help="Write every response, not only changes.")
    ] = False,
) -> None:
    """Poll a Scheduled Events endpoint and record its responses. Approves nothing.

    Exits with 0, also after Ctrl-C; with 1 if no document was received or could be written."""
    from forewarn.testing.recording.endpoint import DEFAULT_URL, BadUrl, Endpoint
    from forewarn.testing.recording.file import RecordingFile, RecordingFileError
    from forewarn.testing.recording.recorder import Ending, Recorder

    if version not in BY_NAME:
        raise typer.BadParameter(
            f"unknown api-version '{version}'; expected one of {', '.join(BY_NAME)}",
            param_hint="--version",
        )
    interval, patience = _seconds("--every", every), _seconds("--timeout", timeout)
    if interval < MIN_EVERY:
        raise typer.BadParameter(f"the minimum is {MIN_EVERY:g} s", param_hint="--every")
    if patience <= 0:
        raise typer.BadParameter(
            "the timeout must be more than 0; 10s is usual", param_hint="--timeout"
        )
    ending = Ending(after=None if for_ is None else _seconds("--for", for_), when_quiet=until_quiet)
    try:
        endpoint = Endpoint(url or DEFAULT_URL)
    except BadUrl as error:
        raise typer.BadParameter(str(error), param_hint="URL") from error
    try:
        with RecordingFile(output) as keeping:
            recorder = Recorder(
                endpoint,
                keeping.write,
                version=version,
                machine=machine,
                everything=all_,
                timeout=patience,
                after=keeping.last_time,
            )
            say(f"{'appending to' if keeping.appending else 'writing'} {output}", err=True)
            _poll(recorder, interval, ending)
            lines = keeping.lines
    except RecordingFileError as error:
        fail(str(error))
    say(f"{output}: {recorder.polls} polls, {lines} lines", err=True)
    if not recorder.documents:
        fail(f"{endpoint} never returned a document; the recording has its responses")


def _poll(recorder: Recorder, interval: float, ending: Ending) -> None:
    from forewarn.support import guard
    from forewarn.testing.recording.live_text import LiveText

    telling = LiveText()
    with _told_to_stop(recorder) as stop:
        recorder.begin()
        if recorder.machine is None:
            say("this machine's name is unknown; pass --machine", err=True)
        begun = due = guard.monotonic()
        while not stop.is_set():
            try:
                answer = recorder.poll()
            except KeyboardInterrupt:
                break
            for change in telling.changes(answer):
                say(change, err=True)
            if ending.reached(recorder, begun):
                break
            due = max(due + interval, guard.monotonic())
            left = due - guard.monotonic()
            if ending.after is not None:
                left = min(left, begun + ending.after - guard.monotonic())
            stop.wait(max(0.0, left))
        recorder.end()


@contextmanager
def _told_to_stop(recorder: Recorder) -> Iterator[threading.Event]:
    """Set by Ctrl-C or SIGTERM. An answer that is waited for is given up; a line that is being
    written is not."""
    stop = threading.Event()

    def told(*_: object) -> None:
        stop.set()
        if recorder.waiting:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def from_(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Recordings, traces, or texts that contain documents; - for standard input."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file. Default: standard output.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the scenario.")] = None,
) -> None:
    """Create a scenario from a recording, or from documents in a text."""
    if output is not None and output in files:
        raise typer.BadParameter(
            "this would overwrite the recording; choose another file", param_hint="--output"
        )
    from forewarn.testing.recording.reader import NotARecording
    from forewarn.testing.scenarios.from_recording import NoScenario, scenario_text

    try:
        found = read_any(files)
        stem = files[0].stem if files[0] != STDIN else "pasted"
        text = scenario_text(found.lines, name=name or stem, notes=found.notes)
    except (NotARecording, NoScenario) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    notes(found.notes)
    if output is None:
        say_text(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{output}: {error.strerror}")
    say(f"{output}: run it with 'forewarn scenario run {output} -- CMD'", err=True)


def read_any(files: list[Path]) -> Recording:
    """What files tell together; `-` is standard input."""
    from forewarn.testing.recording.reader import Recording, read, read_data

    named = read([file for file in files if file != STDIN])
    if STDIN not in files:
        return named
    given = read_data(sys.stdin.buffer.read())
    lines: list[Mapping[str, Any]] = sorted([*named.lines, *given.lines], key=lambda one: one["t"])
    return Recording(
        lines=tuple(lines),
        notes=(*named.notes, *given.notes),
        unreadable=named.unreadable + given.unreadable,
        was_text=named.was_text or given.was_text,
    )


def _seconds(option: str, said: str) -> float:
    try:
        return parse_duration(said) / SECOND
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
