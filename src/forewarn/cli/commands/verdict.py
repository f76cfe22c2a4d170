"""`forewarn verdict`: report what clients did about their events, from a running service or a
recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.output import (
    Json,
    Url,
    fail,
    print_json,
    print_table,
    say,
    service,
    writable_place,
)

if TYPE_CHECKING:
    from forewarn.verdict.rules import RuleName
    from forewarn.verdict.verdict import Verdict


@accepts_yes
def verdict(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Traces written by --record. Default: the running service."),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(help="Report only on this machine.", autocompletion=completion.machines),
    ] = None,
    event: Annotated[
        str | None,
        typer.Option(
            help="Report only on this event (ID or a prefix of it).",
            autocompletion=completion.events,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="Ignore violations of this rule. Repeatable.", autocompletion=completion.rules
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 for notes as well.")
    ] = False,
    junit: Annotated[
        Path | None,
        typer.Option(help="Also write a JUnit XML report to this file.", callback=writable_place),
    ] = None,
    forget: Annotated[
        bool,
        typer.Option("--forget", help="Discard the running service's observations and start over."),
    ] = False,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules and exit.")] = False,
    json: Json = False,
    url: Url = None,
) -> None:
    """Report what clients did about their events. Exits with 1 if they did anything wrong."""
    if rules:
        _rules(json)
        return
    allowed = _check_rules(allow or [])
    if forget:
        if files or machine or event:
            raise typer.BadParameter(
                "--forget applies to a running service as a whole and takes no other options"
            )
        with service(url) as client:
            client.forget_verdict()
        say("all observations were discarded")
        return
    verdict = _of_files(files, machine, event) if files else _of_service(url, machine, event)
    verdict = verdict.without(*allowed)
    if junit is not None:
        _write_junit(junit, verdict)
    if json:
        print_json(verdict)
    else:
        _show(verdict)
    if not verdict.ok or (strict and verdict.notes):
        raise typer.Exit(1)


def _of_service(url: str | None, machine: str | None, event: str | None) -> Verdict:
    with service(url) as client:
        return client.verdict(machine, event)


def _of_files(files: list[Path], machine: str | None, event: str | None) -> Verdict:
    from forewarn.verdict.files import verdict_of_files

    try:
        trace = verdict_of_files(files)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if not trace.exchanges and trace.unreadable:
        fail(
            f"{', '.join(map(str, files))}: this is not a trace, nor a text with documents in it;"
            " pass a file that was written with --record"
        )
    if not trace.exchanges:
        fail("the trace contains no requests, so there is no verdict")
    if trace.unreadable > len(files):  # a service that is killed may leave one incomplete line
        fail(f"{trace.unreadable} lines cannot be read; is this a trace?")
    verdict = trace.verdict
    if machine is not None:
        try:
            verdict = verdict.of(machine)
        except LookupError:
            fail(f"the trace contains nothing about machine '{machine}'")
    if event is not None:
        try:
            verdict = verdict.about(event)
        except LookupError:
            fail(f"the trace contains nothing about event {event}")
    return verdict


def _check_rules(names: list[str]) -> tuple[RuleName, ...]:
    from forewarn.verdict.rules import check_rules

    try:
        return check_rules(*names)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--allow") from None


def _rules(json: bool) -> None:
    from forewarn.verdict.rules import RULES

    if json:
        print_json(RULES)
    else:
        print_table(
            ("RULE", "SEVERITY", "EXPECTATION"),
            [(name, rule.severity, rule.expects) for name, rule in RULES.items()],
        )


def _write_junit(path: Path, verdict: Verdict) -> None:
    from forewarn.verdict.junit import junit

    try:
        path.write_bytes(junit(verdict))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")


def _show(verdict: Verdict) -> None:
    from forewarn.verdict import rendering as r

    say(r.headline(verdict))
    for text in r.complaint_texts(verdict.complaints):
        for line in text.split("\n"):
            say(line)
    for event in verdict.unannounced:
        say("")
        say(r.unannounced_line(event))
    for courses in r.by_event(verdict).values():
        say("")
        say(r.event_line(courses[0]))
        cells = [r.course_cells(course) for course in courses]
        print_table(r.COURSES, cells, minor=("POLLS", "AS"))
    if verdict.conducts:
        say("")
        cells = [r.conduct_cells(conduct) for conduct in verdict.conducts]
        print_table(r.CONDUCTS, cells, minor=("USER-AGENT", "FAULTS", "API-VERSION", "ANSWERED"))
    for remark in verdict.remarks:
        say(f"remark: {remark}")
