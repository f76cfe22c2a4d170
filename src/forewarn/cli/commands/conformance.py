"""`forewarn conformance`: check a recording for promises that the service has broken.

The rules are the package `judge`. What clients did wrong is `forewarn verdict`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forewarn.cli.output import Json, fail, print_json, print_notes, print_table, say_text

if TYPE_CHECKING:
    from forewarn.judge.reading.recordings import Recordings


def conformance(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Traces written by --record, or documents as JSON. Those of"
            " several nodes and of control are checked as one."
        ),
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules and exit.")] = False,
    json: Json = False,
) -> None:
    """Check whether a recorded service kept its promises to its guests.

    Reports early starts, lost approvals, leaks and other violations, and exits with 1 if there are
    any. To check what clients did, use 'forewarn verdict'."""
    from forewarn import judge
    from forewarn.judge.reading.recordings import Recordings

    if rules:
        if json:
            print_json(judge.RULES)
        else:
            print_table(("RULE", "REQUIREMENT"), list(judge.RULES.items()))
        return
    if not files:
        raise typer.BadParameter("pass at least one trace")
    recordings = Recordings()
    try:
        judgement = judge.judge(_records(files, recordings))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if contradiction := recordings.contradiction():
        fail(f"{contradiction}; pass recordings of one service")
    if recordings.lack_fleet:
        print_notes(
            [
                "no recording describes the fleet, so documents of different machines are not"
                " compared; pass the recording of control as well"
            ]
        )
    if not judgement.exchanges and judgement.unreadable:
        fail(
            f"{', '.join(map(str, files))}: this is not a trace, nor a text with documents in it;"
            " pass a file that was written with --record"
        )
    if not judgement.exchanges:
        fail("the trace contains no requests, so there is nothing to check")
    if judgement.unreadable > len(files):  # a service that is killed may leave one incomplete line
        fail(f"{judgement.unreadable} lines cannot be read; is this a trace?")
    if json:
        print_json(judgement.as_dict())
    else:
        say_text(judgement.render())
    if not judgement.ok:
        raise typer.Exit(1)


def _records(files: list[Path], recordings: Recordings) -> Iterator[Any]:
    """Yield the records of traces, and those made from documents as JSON. Each file is opened only
    once, because it may be a pipe."""
    from forewarn.judge.reading.recording_file import read_recording
    from forewarn.testing.recording.reader import read_documents_file
    from forewarn.verdict.files import rewindable

    for path in files:
        with rewindable(path) as file:
            documents = read_documents_file(file)
            if documents is None:
                yield from recordings.read(str(path), read_recording(file))
            else:
                print_notes(documents.notes)
                yield from documents.lines
