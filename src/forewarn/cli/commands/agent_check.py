"""`forewarn agent check`, `test` and `status`."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import typer

from forewarn.cli.output import (
    fail,
    fail_all,
    parsed,
    print_fields,
    print_json,
    print_table,
    say,
    time_text,
)
from forewarn.support.text import SECOND, in_words, parse_duration

if TYPE_CHECKING:
    from forewarn.agent.config.address import ListenAddress
    from forewarn.agent.telemetry.status import CaseView, RunView, StatusView

TIMEOUT = 5.0  # seconds for the agent to respond
MAX_RESPONSE = 16 * 1024 * 1024  # bytes of its response


def check(config: Path, json: bool) -> None:
    from forewarn.agent.check.check import findings

    reported = []
    for finding in findings(config):
        reported.append(finding)
        if not json:
            say(f"{finding.grade:<8} {finding}")
    problems = sum(finding.grade == "problem" for finding in reported)
    if json:
        print_json({"usable": not problems, "findings": reported})
    if problems:
        raise typer.Exit(1)


class HypotheticalEvent(NamedTuple):
    """An event as the options of `agent test` describe it."""

    type: str
    source: str
    duration: str | None
    notice: str
    peer: bool
    labels: list[str]


def explain(path: Path, options: HypotheticalEvent, json: bool) -> None:
    from forewarn.agent.check import explain_rules
    from forewarn.agent.config.read import ConfigError, read
    from forewarn.client.events import Event

    try:
        config = read(path)
    except ConfigError as error:
        fail_all(error.problems)
    duration = parsed(parse_duration, options.duration, "--duration")
    event = Event(
        id="hypothetical",
        type=options.type,
        status="Scheduled",
        source=options.source,
        duration=None if duration is None else duration // SECOND,
    )
    tags = dict(parsed(_label, label, "--label") for label in options.labels)
    results = explain_rules.explain(config, event, mine=not options.peer, tags=tags)
    rule = next((r for r, result in zip(config.rules, results, strict=True) if not result.why_not),
                None)  # fmt: skip
    notice = parsed(parse_duration, options.notice, "--notice") / SECOND
    steps = [] if rule is None else list(explain_rules.actions(rule, config.hooks, notice))
    if json:
        print_json({"rule": rule and rule.name, "rules": results, "steps": steps})
        return
    for result in results:
        reason = f": {result.why_not}" if result.why_not else ""
        say(f"{'no ' if result.why_not else 'yes'}  {result.rule}{reason}")
    for step in steps or ["no rule matches: nothing is done about it"]:
        say(f"     {step}")


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ValueError(f"'{text}' is not a label; write it as KEY=VALUE")
    return key, value


def status(path: Path, json: bool) -> None:
    from forewarn.agent.config.address import parse_listen
    from forewarn.agent.config.read import ConfigError, read
    from forewarn.agent.telemetry.status import StatusView

    try:
        config = read(path)
    except ConfigError as error:
        fail_all(error.problems)
    if not config.listen:
        fail(f"{path}: the agent does not listen anywhere, so it has no status ([agent] listen)")
    address = parse_listen(config.listen, anywhere=config.listen_anywhere)
    try:
        body = _get_status(address)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or error
        fail(f"no agent answers at {address}: {reason}; is it running (systemctl status"
             " forewarn-agent)?")  # fmt: skip
    try:
        view = msgspec.json.decode(body, type=StatusView)
    except msgspec.DecodeError:
        fail(f"the answer at {address} is not that of an agent of this version")
    if json:
        print_json(view)
    else:
        _show(view)


def _show(view: StatusView) -> None:
    endpoint = view.endpoint
    mode = "long-polls" if endpoint.long_poll else "polled every second"
    problem = (
        f"{endpoint.problem}, since {time_text(endpoint.since)}" if endpoint.problem else "none"
    )
    machine = view.machine or "not known yet"
    print_fields(
        [
            ("machine", machine + (" (dry run)" if view.dry_run else "")),
            ("endpoint", f"{endpoint.endpoint}, {mode}" if endpoint.endpoint else "not found yet"),
            ("problem", problem),
            ("now", time_text(view.now)),
            ("version", view.version),
        ]
    )
    if view.cases:
        say("")
        columns = ("EVENT", "TYPE", "MACHINES", "RULE", "STATE", "NOT BEFORE", "COMMANDS")
        minor = ("RULE", "COMMANDS", "STATE", "MACHINES", "TYPE")
        print_table(columns, [_row(case) for case in view.cases], minor=minor)


def _row(case: CaseView) -> tuple[str, ...]:
    event = case.event
    return (
        event.id,
        event.type,
        " ".join(event.resources),
        case.rule,
        case.state,
        time_text(event.not_before) or event.status,
        "; ".join(map(_run, case.runs)),
    )


def _run(run: RunView) -> str:
    if run.state != "done":
        outcome = run.state
    elif run.outcome == "ended":
        outcome = "done" if run.code == 0 else f"failed ({run.code})"
    else:
        outcome = run.outcome
    attempt = f" #{run.attempt}" if run.attempt > 1 else ""
    took = "" if run.seconds is None else f" in {in_words(round(run.seconds * SECOND))}"
    return f"{run.stage} {run.hook}{attempt} {outcome}{took}"


class _Connection(http.client.HTTPConnection):
    """A connection to a UNIX socket or to an address, never through a proxy."""

    def __init__(self, address: ListenAddress) -> None:
        super().__init__(address.host or "localhost", address.port or 80, timeout=TIMEOUT)
        self._address = address

    def connect(self) -> None:
        if not self._address.path:
            super().connect()
            return
        self.sock: Any = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self._address.path)


def _get_status(address: ListenAddress) -> bytes:
    connection = _Connection(address)
    try:
        connection.request("GET", "/status")
        return connection.getresponse().read(MAX_RESPONSE)
    finally:
        connection.close()
