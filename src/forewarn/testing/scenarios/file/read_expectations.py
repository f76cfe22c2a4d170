"""What a scenario expects, read from its file. It is checked by `engine/check_expectations.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from forewarn.support.yaml_positions import Where, YamlError
from forewarn.testing.scenarios.file import shapes as e
from forewarn.testing.scenarios.file.convert import duration, entry, known, mapping
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
) -> Expectation:
    if isinstance(raw, str):
        if raw != e.NO_COMPLAINTS:
            raise YamlError(f"'{raw}' is no expectation; write {_FORMS}", at)
        return ComplaintsExpectation(line=line(at))
    said = mapping(raw, at, "an expectation")
    forms = [key for key in ("event", "command", "complaints") if key in said]
    if len(forms) != 1:
        raise YamlError(f"an expectation is one of {_FORMS}", at)
    if forms == ["complaints"]:
        found = entry(said, e.ComplaintsExpected, at, "an expectation")
        for index, rule in enumerate(found.complaints):
            known(rule, RULES, (*at, "complaints", index), "rule")
        return ComplaintsExpectation(line=line(at), allowed=tuple(found.complaints))
    if forms == ["command"]:
        return _command(entry(said, e.CommandExpected, at, "an expectation").command, at, line)
    words = entry(said, e.EventExpected, at, "an expectation")
    known(words.event, names, (*at, "event"), "line with the name")
    if words.of:
        known(words.of, machines, (*at, "of"), "machine")
    expected = [
        _expected(moment, wanted, (*at, moment.value), machines)
        for moment in Moment
        if (wanted := getattr(words, moment.value)) is not None
    ]
    if words.not_approved:
        expected.append(Expected(moment=Moment.APPROVED, never=True))
    if not expected and words.in_time is None:
        moments = ", ".join(moment.value for moment in Moment)
        raise YamlError(f"it does not say what is expected of the event: {moments}, in-time", at)
    return EventExpectation(
        line=line(at),
        event=words.event,
        of=words.of,
        expected=tuple(expected),
        in_time=words.in_time,
    )


def _command(words: e.CommandEntry, at: Where, line: Callable[[Where], int]) -> CommandExpectation:
    if words.exit is None and words.running is None and words.crashed is None:
        raise YamlError("of a command exit, running or crashed is expected", (*at, "command"))
    return CommandExpectation(
        line=line(at), exit=words.exit, running=words.running, crashed=words.crashed
    )


def _expected(moment: Moment, said: Any, at: Where, machines: Collection[str]) -> Expected:
    if isinstance(said, bool):
        return Expected(moment=moment, never=not said)
    by: tuple[str, ...] = ()
    if said.by is not None:
        by = (said.by,) if isinstance(said.by, str) else tuple(said.by)
        if not by:
            raise YamlError("name at least one machine, or leave 'by' out", (*at, "by"))
        if moment not in (Moment.SEEN, Moment.PREPARED, Moment.APPROVED):
            raise YamlError(f"'{moment.value}' is nobody's doing; leave 'by' out", (*at, "by"))
        for name in by:
            if name not in (ANY, EACH, OWN) or len(by) > 1:
                known(name, machines, (*at, "by"), "machine")
    return Expected(
        moment=moment,
        by=by,
        within=None if said.within is None else duration(said.within, (*at, "within")),
        ahead=None if said.ahead is None else duration(said.ahead, (*at, "ahead")),
    )
