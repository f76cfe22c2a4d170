"""`forewarn apply`: make the inventory what a file says, or show what that would change.

The text is sent as it is: reading it takes packages that only the service has.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.output import Json, Url, as_json, fail, notes, refusal, say, service
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.schema.fleet import MAX_FLEET_BYTES, FleetCounts, FleetDifference, FleetItem

APPLY_TIMEOUT = 600.0  # seconds that a service may take to apply a fleet
SHOWN_ITEMS = 20  # of each kind, one by one; of more only how many
LOOK_EVERY = 0.2  # seconds between two looks at the progress
SIGNS = {"added": "+", "changed": "~", "moved": ">", "removed": "-"}


def apply(
    file: Annotated[Path | None, typer.Argument(help="Fleet file (YAML or JSON).")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would change, without changing anything.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also remove machines that have an active event.")
    ] = False,
    if_match: Annotated[
        str | None,
        typer.Option(
            "--if-match",
            help="Apply only if the fleet still has this version, as printed by --plan.",
        ),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of fleet files and exit.")
    ] = False,
    json: Json = False,
    url: Url = None,
) -> None:
    """Apply a fleet file: create, change and remove hosts, groups and machines at once."""
    if schema:
        from forewarn.service.fleet.shapes import schema_text

        typer.echo(schema_text(), nl=False)
        return
    if file is None:
        raise typer.BadParameter("pass a fleet file, or --schema", param_hint="FILE")
    try:
        size = file.stat().st_size
        text = file.read_bytes() if size <= MAX_FLEET_BYTES else b""
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    if size > MAX_FLEET_BYTES:
        fail(f"{file}: the file has {size:,} bytes; the maximum is {MAX_FLEET_BYTES:,}")
    with service(url) as client:
        client.timeout = APPLY_TIMEOUT
        try:
            with _progress(client):
                wanted = if_match.strip('"') if if_match else None
                found = client.apply(text, plan=plan, force=force, if_match=wanted)
        except ControlError as error:
            fail(refusal(error, str(file) if error.problem and error.problem.line else ""))
    if json:
        as_json(found)
    else:
        _show(found, file)


def _show(found: FleetDifference, file: Path) -> None:
    if not found.total:
        say("nothing to change")
        return
    told: dict[tuple[str, str], int] = {}
    for item in found.items:
        kind = (item.what, item.action)
        told[kind] = told.get(kind, 0) + 1
        if told[kind] <= SHOWN_ITEMS:
            say(_line(item))
    for what, how, count in _totals(found):
        if count > min(told.get((what, how), 0), SHOWN_ITEMS):
            say(f"{SIGNS[how]} … {count} {what}s {how} in all")
    counts = [
        f"{count} {what}{'s' if count > 1 else ''} {how}" for what, how, count in _totals(found)
    ]
    say(f"{'would be: ' if found.planned else ''}{', '.join(counts)}")
    notes(found.warnings[:SHOWN_ITEMS])
    if found.planned and found.blocked_by:
        for one in found.blocked_by[:SHOWN_ITEMS]:
            say(
                f"conflict: {one.what} '{one.name}' has an active event:"
                f" {one.type} {one.event} ({one.status})"
            )
        say(f"this plan is refused; to apply it all the same: forewarn apply {file} --force")
    if found.etag:
        tag = found.etag.strip('"')
        say(f"to apply exactly this plan: forewarn apply {file} --if-match {tag}", err=True)


def _totals(found: FleetDifference) -> Iterator[tuple[str, str, int]]:
    parts: list[tuple[str, FleetCounts]] = [
        ("host", found.hosts),
        ("group", found.groups),
        ("machine", found.machines),
    ]
    for what, counts in parts:
        for how in SIGNS:
            if count := getattr(counts, how):
                yield what, how, count


def _line(item: FleetItem) -> str:
    where = f" in {item.group}" if item.group else ""
    if item.action == "moved":
        where = f" from {item.previous_group} to {item.group}"
    changes = ", ".join(f"{c.field}: {_said(c.before)} → {_said(c.after)}" for c in item.fields)
    return f"{SIGNS[item.action]} {item.what} {item.name}{where}{': ' if changes else ''}{changes}"


def _said(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={said}" for key, said in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(str, value)) + "]"
    return "nothing" if value in (None, "") else str(value)


@contextmanager
def _progress(client: ControlClient) -> Iterator[None]:
    """A bar on a terminal, fed by what the service says while it works; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    done = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)

    def watch() -> None:
        task = bar.add_task("sending", total=1.0)
        while not done.wait(LOOK_EVERY):
            try:
                now = client.fleet_progress()
            except ControlError:
                return
            bar.update(task, description=now.stage or "sending", completed=now.fraction)

    with bar, ThreadPoolExecutor(1) as beside:
        watching: Future[None] = beside.submit(watch)
        try:
            yield
        finally:
            done.set()
            watching.result()
