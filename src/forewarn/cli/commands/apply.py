"""`forewarn apply`: apply a fleet file, or show what that would change.

The text is sent as it is, because parsing it needs packages that only the service has.
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

from forewarn.cli.confirm import accepts_yes
from forewarn.cli.options import Fields
from forewarn.cli.output import (
    Json,
    Url,
    fail,
    fail_all,
    print_json,
    print_notes,
    refusal,
    say,
    service,
)
from forewarn.cli.plain import takes
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.operations import fleet as operations
from forewarn.control.schema.fleet import MAX_FLEET_BYTES, FleetCounts, FleetDifference, FleetItem
from forewarn.support.text import not_utf8

APPLY_TIMEOUT = 600.0  # seconds that a service may take to apply a fleet
SHOWN_ITEMS = 20  # of each kind; of the others, only the number
PROGRESS_EVERY = 0.2  # seconds between two requests for the progress
SIGNS = {"added": "+", "changed": "~", "moved": ">", "removed": "-"}


@accepts_yes
@takes(operations.PUT_FLEET)
def apply(
    file: Annotated[Path | None, typer.Argument(help="Fleet file (YAML or JSON).")] = None,
    *,
    fields: Fields,
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
    """Apply a fleet file: create, change and remove hosts, groups and machines in one step."""
    if schema:
        from forewarn.service.fleet.shapes import schema_text

        typer.echo(schema_text(), nl=False)
        return
    if file is None:
        raise typer.BadParameter("pass a fleet file, or --schema", param_hint="FILE")
    try:
        size = file.stat().st_size
        text = file.read_bytes() if size <= MAX_FLEET_BYTES else b""
        text.decode()  # only a check: the service decodes it again
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except UnicodeDecodeError as error:
        fail(f"{file}: {not_utf8(error)}")
    if size > MAX_FLEET_BYTES:
        fail(f"{file}: the file has {size:,} bytes; the maximum is {MAX_FLEET_BYTES:,}")
    with service(url) as client:
        client.timeout = APPLY_TIMEOUT
        try:
            with _progress(client):
                etag = if_match.strip('"') if if_match else None
                difference = client.apply(text, if_match=etag, **fields)
        except ControlError as error:
            problem = error.problem
            if problem is None or problem.line is None:
                fail(refusal(error))
            others = [f"{file}:{other.line}: {other.detail}" for other in problem.errors]
            fail_all([refusal(error, str(file)), *others])
    if json:
        print_json(difference)
    else:
        placement = fields.get("placement")
        chosen = f"{file} --placement {placement}" if placement else str(file)
        _show(difference, chosen, force=fields["force"], remove=fields.get("remove"))


def _show(
    difference: FleetDifference, chosen: str, *, force: bool = False, remove: int | None = None
) -> None:
    """Show what has changed or would change, and how to apply what is planned; `chosen` is the
    file, with the options that decide what is in the plan."""
    if not difference.total:
        say("nothing to change")
        print_notes(difference.warnings[:SHOWN_ITEMS])
        _show_conflicts(difference)
        return
    shown: dict[tuple[str, str], int] = {}
    for item in difference.items:
        kind = (item.what, item.action)
        shown[kind] = shown.get(kind, 0) + 1
        if shown[kind] <= SHOWN_ITEMS:
            say(_line(item))
    for what, action, count in _totals(difference):
        if count > min(shown.get((what, action), 0), SHOWN_ITEMS):
            say(f"{SIGNS[action]} … {count} {what}s {action} in total")
    counts = [
        f"{count} {what}{'s' if count > 1 else ''} {action}"
        for what, action, count in _totals(difference)
    ]
    say(f"{'would be: ' if difference.planned else ''}{', '.join(counts)}")
    print_notes(difference.warnings[:SHOWN_ITEMS])
    _show_conflicts(difference)
    if difference.planned and difference.blocked_by:
        for blocker in difference.blocked_by[:SHOWN_ITEMS]:
            say(
                f"conflict: {blocker.what} '{blocker.name}' has an active event:"
                f" {blocker.type} {blocker.event} ({blocker.status})"
            )
        say("this plan would be refused; if it is to be applied anyway, pass --force")
        force = True
    if (excess := difference.refused_for) is not None:
        problem = f"which is more than the limit of {excess.allowed}"
        if excess.given is not None:
            problem = f"not {excess.given}"
        say(
            f"this plan would be refused: it removes {excess.count} machines, {problem}; if that is"
            f" intended, pass --remove {excess.count}"
        )
        remove = excess.count
    if difference.etag:
        if force:
            chosen += " --force"
        if remove:
            chosen += f" --remove {remove}"
        tag = difference.etag.strip('"')
        say(f"to apply exactly this plan: forewarn apply {chosen} --if-match {tag}", err=True)


def _show_conflicts(difference: FleetDifference) -> None:
    """Show which machines are elsewhere than the file says, and how to settle that."""
    for conflict in difference.conflicts[:SHOWN_ITEMS]:
        say(
            f"conflict: the file has machine '{conflict.machine}' on {conflict.file}, but it is"
            f" known to be on {conflict.known}, where it stays"
        )
    count = len(difference.conflicts) + difference.omitted_conflicts
    if count > SHOWN_ITEMS:
        say(f"conflict: … {count} machines in total")
    if count:
        say(
            "to record where a machine is: forewarn machine moved NAME --to HOST; to let the file"
            " or the reports decide: forewarn apply FILE --placement file (or reported)"
        )


def _totals(difference: FleetDifference) -> Iterator[tuple[str, str, int]]:
    """Yield what was changed, how, and how many."""
    parts: list[tuple[str, FleetCounts]] = [
        ("host", difference.hosts),
        ("group", difference.groups),
        ("machine", difference.machines),
        ("maintenance configuration", difference.maintenance),
    ]
    for what, counts in parts:
        for action in SIGNS:
            if count := getattr(counts, action):
                yield what, action, count


def _line(item: FleetItem) -> str:
    where = f" in {item.group}" if item.group else ""
    if item.action == "moved":
        where = f" from {item.previous_group} to {item.group}"
    changes = ", ".join(f"{c.field}: {_text(c.before)} → {_text(c.after)}" for c in item.fields)
    return f"{SIGNS[item.action]} {item.what} {item.name}{where}{': ' if changes else ''}{changes}"


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={inner}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(str, value)) + "]"
    return "nothing" if value in (None, "") else str(value)


@contextmanager
def _progress(client: ControlClient) -> Iterator[None]:
    """Show a progress bar on a terminal, from what the service reports while it works."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    done = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)

    def update() -> None:
        task = bar.add_task("sending", total=1.0)
        while not done.wait(PROGRESS_EVERY):
            try:
                progress = client.fleet_progress()
            except ControlError:
                return
            stage = progress.stage or "sending"
            bar.update(task, description=stage, completed=progress.fraction)

    with bar, ThreadPoolExecutor(1) as executor:
        updating: Future[None] = executor.submit(update)
        try:
            yield
        finally:
            done.set()
            updating.result()
