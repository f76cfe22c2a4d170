"""`forewarn record`, which records the responses of a real endpoint, and `forewarn scenario from`,
which makes a scenario of a recording. Both are implemented in `testing.recording`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forewarn.cli import completion
from forewarn.cli.output import fail, parsed_seconds, print_notes, say, say_text
from forewarn.support.text import counted
from forewarn.wire.versions import BY_NAME, NEWEST

if TYPE_CHECKING:
    from forewarn.support.signal_flag import SignalFlag
    from forewarn.testing.recording.reader import Recording
    from forewarn.testing.recording.recorder import Ending, Recorder

MIN_EVERY = 0.05  # seconds between two polls
STDIN = Path("-")


def record(
    url: Annotated[
        str | None,
        typer.Argument(
            envvar="FOREWARN_METADATA", help="URL of the endpoint. Default: http://169.254.169.254"
        ),
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
    version: Annotated[
        str,
        typer.Option(help="API version to request.", autocompletion=completion.one_of(*BY_NAME)),
    ] = NEWEST.name,
    machine: Annotated[
        str | None, typer.Option(help="Name of this machine. Default: as reported by the endpoint.")
    ] = None,
    timeout: Annotated[
        str, typer.Option(help="Time to wait for a response; at least 130s for the first one.")
    ] = "10s",
    all_: Annotated[
        bool, typer.Option("--all", help="Write every response, not only changes.")
    ] = False,
) -> None:
    """Poll a Scheduled Events endpoint and record its responses. Approves nothing.

    Exits with 0, even after Ctrl-C, and with 1 if no document was received or could be written."""
    from forewarn.testing.recording.endpoint import DEFAULT_URL, BadUrl, Endpoint
    from forewarn.testing.recording.file import RecordingFile, RecordingFileError
    from forewarn.testing.recording.recorder import Ending, Recorder

    if version not in BY_NAME:
        raise typer.BadParameter(
            f"unknown api-version '{version}'; expected one of {', '.join(BY_NAME)}",
            param_hint="--version",
        )
    interval, timeout_s = parsed_seconds("--every", every), parsed_seconds("--timeout", timeout)
    if interval < MIN_EVERY:
        raise typer.BadParameter(f"the minimum is {MIN_EVERY:g} s", param_hint="--every")
    if timeout_s <= 0:
        raise typer.BadParameter(
            "the timeout must be more than 0; 10s is usual", param_hint="--timeout"
        )
    ending = Ending(after=parsed_seconds("--for", for_), when_quiet=until_quiet)
    try:
        endpoint = Endpoint(url or DEFAULT_URL)
    except BadUrl as error:
        raise typer.BadParameter(str(error), param_hint="URL") from error
    try:
        with RecordingFile(output) as recording:
            recorder = Recorder(
                endpoint,
                recording.write,
                version=version,
                machine=machine,
                everything=all_,
                timeout=timeout_s,
                after=recording.last_time,
            )
            say(f"{'appending to' if recording.appending else 'writing'} {output}", err=True)
            _poll(recorder, interval, ending)
            lines = recording.lines
    except RecordingFileError as error:
        fail(str(error))
    say(f"{output}: {counted(recorder.polls, 'poll')}, {counted(lines, 'line')}", err=True)
    if not recorder.documents:
        fail(f"{endpoint} never returned a document; the recording has its responses")


def _poll(recorder: Recorder, interval: float, ending: Ending) -> None:
    from forewarn.support import guard
    from forewarn.testing.recording.live_text import LiveText

    live_text = LiveText()
    with _stop_on_signal(recorder) as stop:
        recorder.begin()
        if recorder.machine is None:
            say("this machine's name is unknown; pass --machine", err=True)
        started = due = guard.monotonic()
        while not stop.is_set():
            try:
                response = recorder.poll()
            except KeyboardInterrupt:
                break
            for change in live_text.changes(response):
                say(change, err=True)
            if ending.reached(recorder, started):
                break
            due = max(due + interval, guard.monotonic())
            left = due - guard.monotonic()
            if ending.after is not None:
                left = min(left, started + ending.after - guard.monotonic())
            stop.wait(max(0.0, left))
        recorder.end()


@contextmanager
def _stop_on_signal(recorder: Recorder) -> Iterator[SignalFlag]:
    """Yield a flag that Ctrl-C or SIGTERM sets. They interrupt waiting for a response, but not the
    writing of a line."""
    from forewarn.support.signal_flag import SignalFlag

    stop = SignalFlag()

    def handle(*_: object) -> None:
        stop.set()
        if recorder.waiting:
            raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, handle) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        stop.close()


def from_(
    files: Annotated[
        list[Path],
        typer.Argument(help="Recordings, traces, or documents as JSON; - for standard input."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file. Default: standard output.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the scenario.")] = None,
) -> None:
    """Create a scenario from a recording, or from documents as JSON."""
    if output is not None and output in files:
        raise typer.BadParameter(
            "this would overwrite the recording; choose another file", param_hint="--output"
        )
    from forewarn.testing.recording.reader import NotARecordingError
    from forewarn.testing.scenarios.from_recording import NoScenarioError, scenario_text

    try:
        recording = read_any(files)
        stem = files[0].stem if files[0] != STDIN else "documents"
        text = scenario_text(recording.lines, name=name or stem, notes=recording.notes)
    except (NotARecordingError, NoScenarioError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    print_notes(recording.notes)
    if output is None:
        say_text(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{output}: {error.strerror}")
    say(f"{output}: run it with 'forewarn scenario run {output} -- CMD'", err=True)


def read_any(files: list[Path]) -> Recording:
    """Read several files as one recording; `-` is standard input."""
    from forewarn.testing.recording.reader import Recording, read, read_data

    recording = read([file for file in files if file != STDIN])
    if STDIN not in files:
        return recording
    stdin = read_data(sys.stdin.buffer.read())
    lines: list[Mapping[str, Any]] = [*recording.lines, *stdin.lines]
    return Recording(
        lines=tuple(sorted(lines, key=lambda line: line["t"])),
        notes=(*recording.notes, *stdin.notes),
        unreadable=recording.unreadable + stdin.unreadable,
    )
