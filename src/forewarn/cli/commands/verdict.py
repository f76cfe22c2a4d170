"""`forewarn verdict`: what guests did about their events, of a running service or a recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forewarn.cli.output import Json, Url, as_json, fail, say, service, table

if TYPE_CHECKING:
    from forewarn.verdict.verdict import Verdict

COURSES = ("MACHINE", "SEEN", "AS", "READY", "IN TIME", "POLLS")
CONDUCTS = ("MACHINE", "POLLS", "HOW OFTEN", "API-VERSION", "ANSWERED", "FAULTS", "USER-AGENT")


def verdict(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Traces written by --record. Default: the running service."),
    ] = None,
    machine: Annotated[str | None, typer.Option(help="Only this machine.")] = None,
    event: Annotated[
        str | None, typer.Option(help="Only this event (ID or a prefix of it).")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="Ignore violations of this rule. Repeatable.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 for notes as well.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(help="Also write a JUnit XML report to this file.")
    ] = None,
    forget: Annotated[
        bool,
        typer.Option("--forget", help="Discard the running service's observations and start over."),
    ] = False,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules and exit.")] = False,
    json: Json = False,
    url: Url = None,
) -> None:
    """Report what clients did wrong about their events. Exits with 1 if they did anything wrong."""
    if rules:
        _rules(json)
        return
    _known(allow or [])
    if forget:
        if files or machine or event:
            raise typer.BadParameter(
                "--forget applies to a running service as a whole and takes no other options"
            )
        with service(url) as client:
            client.forget_verdict()
        say("all observations were discarded")
        return
    found = _of_files(files, machine, event) if files else _of_service(url, machine, event)
    found = found.without(*(allow or []))
    if junit is not None:
        _write(junit, found)
    if json:
        as_json(found)
    else:
        _show(found)
    if not found.ok or (strict and found.notes):
        raise typer.Exit(1)


def _of_service(url: str | None, machine: str | None, event: str | None) -> Verdict:
    with service(url) as client:
        return client.verdict(machine, event)


def _of_files(files: list[Path], machine: str | None, event: str | None) -> Verdict:
    from forewarn.verdict.files import verdict_of_files

    try:
        heard = verdict_of_files(files)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if not heard.exchanges:
        fail("the trace contains no requests, so there is no verdict")
    if heard.unreadable > len(files):  # a torn last line each is what a kill leaves behind
        fail(f"{heard.unreadable} lines cannot be read; is this a trace?")
    found = heard.verdict
    if machine is not None:
        if not found.knows(machine):
            fail(f"the trace contains nothing about machine '{machine}'")
        found = found.of(machine)
    if event is not None:
        found = found.about(event)
        if not found.courses:
            fail(f"the trace contains nothing about event {event}")
    return found


def _known(allowed: list[str]) -> None:
    from forewarn.verdict.rules import RULES

    for rule in allowed:
        if rule not in RULES:
            raise typer.BadParameter(
                f"unknown rule '{rule}'; 'forewarn verdict --rules' lists them",
                param_hint="--allow",
            )


def _rules(json: bool) -> None:
    from forewarn.verdict.rules import RULES

    if json:
        as_json(RULES)
    else:
        table(
            ("RULE", "SEVERITY", "EXPECTATION"),
            [(n, r.severity, r.expects) for n, r in RULES.items()],
        )


def _write(path: Path, found: Verdict) -> None:
    from forewarn.verdict.junit import junit

    try:
        path.write_bytes(junit(found))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")


def _show(found: Verdict) -> None:
    from forewarn.verdict import rendering as r

    say(r.headline(found))
    for one in found.complaints:
        for line in r.complaint_text(one).split("\n"):
            say(line)
    for courses in r.by_event(found).values():
        say("")
        say(r.event_line(courses[0]))
        table(COURSES, [r.course_cells(course) for course in courses])
    if found.conducts:
        say("")
        table(CONDUCTS, [r.conduct_cells(conduct) for conduct in found.conducts])
    for remark in found.remarks:
        say(f"remark: {remark}")
