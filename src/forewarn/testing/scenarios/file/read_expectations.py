"""Reads the expectations of a scenario file. `engine/check_expectations.py` checks them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from forewarn.support.yaml.positions import Problems, Where, YamlError
from forewarn.testing.scenarios.file import shapes
from forewarn.testing.scenarios.file.convert import (
    check_known,
    convert_entry,
    duration,
    mapping,
)
from forewarn.testing.scenarios.model import (
    ANY,
    EACH,
    OWN,
    CommandExpectation,
    ComplaintsExpectation,
    EventExpectation,
    Expectation,
    Expected,
    Moment,
)
from forewarn.verdict.rules import RULES

_FORMS = "{event: <name>, …}, {command: …}, {complaints: […]} or no-complaints"


def expectation(
    raw: Any,
    at: Where,
    names: Collection[str],
    machines: Collection[str],
    line: Callable[[Where], int],
    problems: Problems,
) -> Expectation:
    if isinstance(raw, str):
        if raw != shapes.NO_COMPLAINTS:
            raise YamlError(f"'{raw}' is not an expectation; write {_FORMS}", at)
        return ComplaintsExpectation(line=line(at))
    values = mapping(raw, at, "an expectation")
    forms = [key for key in ("event", "command", "complaints") if key in values]
    if len(forms) != 1:
        raise YamlError(f"an expectation is one of {_FORMS}", at)
    if forms == ["complaints"]:
        complaints = convert_entry(
            values, shapes.ComplaintsExpected, at, "an expectation", problems
        )
        for index, rule in enumerate(complaints.complaints):
            with problems.collected():
                check_known(rule, RULES, (*at, "complaints", index), "rule")
        return ComplaintsExpectation(line=line(at), allowed=tuple(complaints.complaints))
    if forms == ["command"]:
        command = convert_entry(values, shapes.CommandExpected, at, "an expectation", problems)
        return _command(command.command, at, line)
    mistakes = len(problems.errors)
    entry = convert_entry(values, shapes.EventExpected, at, "an expectation", problems)
    with problems.collected():
        check_known(entry.event, names, (*at, "event"), "event")
    if entry.of:
        with problems.collected():
            check_known(entry.of, machines, (*at, "of"), "machine")
    expected = []
    for moment in Moment:
        if (value := getattr(entry, moment.value)) is not None:
            with problems.collected():
                at_moment = *at, moment.value
                expected.append(_expected(moment, value, at_moment, machines, problems))
    if entry.not_approved:
        expected.append(Expected(moment=Moment.APPROVED, never=True))
    nothing = not expected and entry.in_time is None and entry.idle is None
    if nothing and len(problems.errors) == mistakes:
        moments = ", ".join(moment.value for moment in Moment)
        raise YamlError(f"nothing is expected of the event; add {moments}, in-time or idle", at)
    return EventExpectation(
        line=line(at),
        event=entry.event,
        of=entry.of,
        expected=tuple(expected),
        in_time=entry.in_time,
        idle=entry.idle,
    )


def _command(
    entry: shapes.CommandEntry, at: Where, line: Callable[[Where], int]
) -> CommandExpectation:
    if entry.exit is None and entry.running is None and entry.crashed is None:
        raise YamlError("expected exit, running or crashed", (*at, "command"))
    return CommandExpectation(
        line=line(at), exit=entry.exit, running=entry.running, crashed=entry.crashed
    )


def _expected(
    moment: Moment, value: Any, at: Where, machines: Collection[str], problems: Problems
) -> Expected:
    if isinstance(value, bool):
        return Expected(moment=moment, never=not value)
    within = ahead = None
    with problems.collected():
        within = None if value.within is None else duration(value.within, (*at, "within"))
    with problems.collected():
        ahead = None if value.ahead is None else duration(value.ahead, (*at, "ahead"))
    by: tuple[str, ...] = ()
    if value.by is not None:
        by = (value.by,) if isinstance(value.by, str) else tuple(value.by)
        if not by:
            raise YamlError("name at least one machine, or remove 'by'", (*at, "by"))
        if moment not in (Moment.SEEN, Moment.PREPARED, Moment.APPROVED):
            raise YamlError(
                f"'{moment.value}' has no 'by': machines only see, prepare and approve; remove it",
                (*at, "by"),
            )
        for name in by:
            if name not in (ANY, EACH, OWN) or len(by) > 1:
                with problems.collected():
                    check_known(name, machines, (*at, "by"), "machine")
    return Expected(moment=moment, by=by, within=within, ahead=ahead)
