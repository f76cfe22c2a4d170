"""`forewarn agent check`, `test`, `status`: will it work, what would it do, how does it stand?"""

from __future__ import annotations

import http.client
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import typer

from forewarn.cli.output import as_json, fail, fail_all, fields, moment, parsed, say, table
from forewarn.support.text import SECOND, in_words, parse_duration

if TYPE_CHECKING:
    from forewarn.agent.config.address import ListenAddress
    from forewarn.agent.telemetry.status import CaseView, RunView, Status

PATIENCE = 5.0  # seconds for an agent to say how it stands
MAX_ANSWER = 16 * 1024 * 1024  # bytes of it


def check(config: Path, json: bool) -> None:
    from forewarn.agent.check.check import findings

    found = []
    for finding in findings(config):
        found.append(finding)
        if not json:
            say(f"{finding.grade:<8} {finding.about}: {finding.says}")
    problems = sum(finding.grade == "problem" for finding in found)
    if json:
        as_json({"usable": not problems, "findings": found})
    if problems:
        raise typer.Exit(1)


class Invented(NamedTuple):
    """An event that is only thought of."""

    type: str
    source: str
    duration: str | None
    notice: str
    peer: bool
    labels: list[str]


def invent(config: Path, said: Invented, json: bool) -> None:
    from forewarn.agent.check.explain_rules import done, tried
    from forewarn.agent.config.read import ConfigError, read
    from forewarn.client.events import Event

    try:
        known = read(config)
    except ConfigError as error:
        fail_all(error.problems)
    duration = parsed(parse_duration, said.duration)
    event = Event(
        id="invented",
        type=said.type,
        status="Scheduled",
        source=said.source,
        duration=None if duration is None else duration // SECOND,
    )
    tags = dict(parsed(_label, label) for label in said.labels)
    found = tried(known, event, mine=not said.peer, tags=tags)
    rule = next((r for r, one in zip(known.rules, found, strict=True) if not one.why_not), None)
    notice = parsed(parse_duration, said.notice) / SECOND
    steps = [] if rule is None else list(done(rule, known.hooks, notice))
    if json:
        as_json({"rule": rule and rule.name, "rules": found, "steps": steps})
        return
    for one in found:
        say(
            f"{'no ' if one.why_not else 'yes'}  {one.rule}{f': {one.why_not}' * bool(one.why_not)}"
        )
    for step in steps or ["no rule matches: nothing is done about it"]:
        say(f"     {step}")


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ValueError(f"'{text}' is not a label; write it as KEY=VALUE")
    return key, value


def status(config: Path, json: bool) -> None:
    from forewarn.agent.config.address import listens
    from forewarn.agent.config.read import ConfigError, read
    from forewarn.agent.telemetry.status import Status

    try:
        said = read(config)
    except ConfigError as error:
        fail_all(error.problems)
    if not said.listen:
        fail(f"{config}: the agent listens nowhere, so nobody can ask it ([agent] listen)")
    where = listens(said.listen, anywhere=said.listen_anywhere)
    try:
        body = _asked(where)
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or error
        fail(f"no agent answers at {where}: {why}; is it running (systemctl status"
             " forewarn-agent)?")  # fmt: skip
    try:
        found = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        fail(f"what answers at {where} is no agent of this version")
    if json:
        as_json(found)
    else:
        _show(found)


def _show(found: Status) -> None:
    stands = found.endpoint
    way = "tells of changes" if stands.long_poll else "is asked every second"
    trouble = f"{stands.trouble}, since {moment(stands.since)}" if stands.trouble else "none"
    fields(
        [
            ("machine", (found.machine or "not known yet") + (" (dry run)" if found.dry else "")),
            ("endpoint", f"{stands.endpoint}, {way}" if stands.endpoint else "not found yet"),
            ("trouble", trouble),
            ("now", moment(found.now)),
            ("version", found.version),
        ]
    )
    if found.cases:
        say("")
        columns = ("EVENT", "TYPE", "MACHINES", "RULE", "STATE", "NOT BEFORE", "COMMANDS")
        table(columns, [_row(case) for case in found.cases])


def _row(case: CaseView) -> tuple[str, ...]:
    event = case.event
    return (
        event.id,
        event.type,
        " ".join(event.resources),
        case.rule,
        case.state,
        moment(event.not_before) or event.status,
        "; ".join(map(_run, case.runs)),
    )


def _run(run: RunView) -> str:
    if run.state != "done":
        how = run.state
    elif run.outcome == "ended":
        how = "done" if run.code == 0 else f"failed ({run.code})"
    else:
        how = run.outcome
    again = f" #{run.attempt}" if run.attempt > 1 else ""
    took = "" if run.seconds is None else f" in {in_words(round(run.seconds * SECOND))}"
    return f"{run.stage} {run.hook}{again} {how}{took}"


class _Line(http.client.HTTPConnection):
    """To a path, or to an address; never by a proxy."""

    def __init__(self, where: ListenAddress) -> None:
        super().__init__(where.host or "localhost", where.port or 80, timeout=PATIENCE)
        self._where = where

    def connect(self) -> None:
        if not self._where.path:
            super().connect()
            return
        self.sock: Any = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._where.path)


def _asked(where: ListenAddress) -> bytes:
    line = _Line(where)
    try:
        line.request("GET", "/status")
        return line.getresponse().read(MAX_ANSWER)
    finally:
        line.close()
