"""The documents tell the truth about what can be told mechanically."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer.main

from forewarn.agent.config import read as agent_reading
from forewarn.cli.app import app
from forewarn.cli.commands import run
from forewarn.cli.credentials import MAX_TOKEN_FILE
from forewarn.control.http import access_log as control_calls
from forewarn.control.http import (
    admission,
    authorization,
    errors,
    filters,
    idempotency,
    paging,
    token_attempts,
)
from forewarn.control.routes import backup
from forewarn.control.routes import events as control_events
from forewarn.control.routes import feed as control_feed
from forewarn.control.routes import fleet as control_fleet
from forewarn.control.schema import fleet
from forewarn.control.server import acceptor, connections
from forewarn.control.server import protocol as operators
from forewarn.core import EventType, events, labels, renumbering
from forewarn.core.deciding import announce
from forewarn.core.deciding.decide import BACK_OFF_FIRST, BACK_OFF_MOST
from forewarn.core.history import What
from forewarn.core.lifecycle import TABLE, diagram
from forewarn.drivers import simulated
from forewarn.drivers.command.driver import ASK_AGAIN, CHECK_TIMEOUT, MAX_REASON
from forewarn.drivers.command.slots import GROUP_SHARE
from forewarn.judge import RULES
from forewarn.metadata.endpoint import limits
from forewarn.metadata.endpoint.app import READ_SIZE
from forewarn.metadata.faults import delay
from forewarn.metadata.http import fair_queue, front, protocol, request_parser
from forewarn.metadata.http.protocol import LINGER
from forewarn.metadata.workers import calls, fencing, hub, messages, poll_report, remote_upstream
from forewarn.node import notifying
from forewarn.node.daemon import process_main
from forewarn.node.heap import TRIM_ABOVE
from forewarn.node.listening import certificates, exposure
from forewarn.node.listening.tls import CERTIFICATE_EVERY
from forewarn.node.processes import child, reload_all, supervisor
from forewarn.node.settings import CommandTable, Settings, sources, validate, values
from forewarn.service.access import secret, tokens
from forewarn.service.engine import clock, feed, otel
from forewarn.service.faults import kinds, model, registry
from forewarn.service.faults import validate as validate_fault
from forewarn.service.fleet import build, diff, read
from forewarn.service.telemetry import health, log, stderr
from forewarn.service.upkeep import history, saver
from forewarn.store.sqlite import lock
from forewarn.store.sqlite.engine import PRUNE_SLICE
from forewarn.support import program, suggest, yaml_events
from forewarn.support.text import in_words
from forewarn.testing import Service
from forewarn.testing.enclosure import follow_clock, keeper, loopback, relay, uplink

DOCS = Path(__file__).parents[2] / "docs"
README = DOCS.parent / "README.md"


def test_the_diagram_of_an_events_life_is_drawn_from_the_table() -> None:
    assert TABLE
    assert diagram() in (DOCS / "architecture.md").read_text()


@pytest.mark.parametrize("field", msgspec.structs.fields(Settings), ids=lambda f: f.name)
def test_every_setting_is_documented_with_its_default(field: msgspec.structs.FieldInfo) -> None:
    (row,) = re.findall(rf"^\| `{field.name}` \| (.*?) \|", _settings(), re.MULTILINE)
    default = field.default
    if isinstance(default, bool):
        default = str(default).lower()
    assert row == ("none" if default in ("", None) else f"`{default}`")


@pytest.mark.parametrize("field", msgspec.structs.fields(CommandTable), ids=lambda f: f.name)
def test_every_setting_of_a_program_is_documented(field: msgspec.structs.FieldInfo) -> None:
    default = "none" if field.required else f"`{str(field.default).replace('False', 'false')}`"
    assert f"| `command.{field.name}` | {default} |" in _settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_NOTICE", "90 days"),
        ("MAX_DESCRIPTION", f"{events.MAX_DESCRIPTION:,} characters"),
        ("MAX_DURATION_SECONDS", f"{events.MAX_DURATION_SECONDS:,}"),
        ("MAX_ACTIVE_EVENTS", f"{events.MAX_ACTIVE_EVENTS:,}"),
        ("MAX_READY_NOTE", f"{events.MAX_READY_NOTE:,} characters"),
        ("MAX_FAULTS", f"{registry.MAX_FAULTS:,}"),
        ("MAX_MET", f"{model.MAX_MET:,}"),
        ("MAX_FAULT_TARGETS", f"{validate_fault.MAX_FAULT_TARGETS:,}"),
        ("MAX_FAULT_TIMES", f"{validate_fault.MAX_FAULT_TIMES:,}"),
        ("MAX_FAULT_BODY", f"{validate_fault.MAX_FAULT_BODY:,} characters"),
        ("MAX_HELD", f"{kinds.MAX_HELD:g} s"),
        ("MAX_UNWOUND", f"{delay.MAX_UNWOUND:g} s"),
        ("TIGHT_NOTICE", in_words(announce.TIGHT_NOTICE)),
        ("MAX_PLACEMENT_GROUP", str(read.MAX_PLACEMENT_GROUP)),
        ("MAX_COMPARED", str(suggest.MAX_COMPARED)),
        ("MAX_SCANNED", f"{suggest.MAX_SCANNED:,}"),
        ("MAX_EVENT_MACHINES", f"{events.MAX_EVENT_MACHINES:,}"),
        ("MAX_TEXT", f"{yaml_events.MAX_TEXT:,} characters"),
        ("MAX_KEYS", f"{yaml_events.MAX_KEYS:,}"),
        ("MAX_PAGE", f"{paging.MAX_PAGE:,}"),
        ("MAX_LISTED", f"{control_events.MAX_LISTED:,}"),
        ("PAST_AT_ONCE", str(filters.PAST_AT_ONCE)),
        ("MAX_KEY", f"{idempotency.MAX_KEY} characters"),
        ("MAX_BODY", f"{errors.MAX_BODY // 1024**2} MiB"),
        ("MAX_OPERATOR_CONNECTIONS", f"{connections.MAX_OPERATOR_CONNECTIONS:,}"),
        ("MAX_OPERATOR_SHARE", f"{connections.MAX_OPERATOR_SHARE:,}"),
        ("HANDSHAKE_TIMEOUT", f"{acceptor.HANDSHAKE_TIMEOUT:.0f} s"),
        ("MAX_READY_CHANGES", str(events.MAX_READY_CHANGES)),
        ("MAX_STREAMS_OF_ONE", str(control_feed.MAX_STREAMS_OF_ONE)),
        ("MAX_TOLD", f"{control_calls.MAX_TOLD:,}"),
        ("MAX_OPERATOR_HEAD", f"{operators.MAX_OPERATOR_HEAD // 1024} KiB"),
        ("OPERATOR_HEAD_TIMEOUT", f"{operators.OPERATOR_HEAD_TIMEOUT:.0f} s"),
        ("UNREAD_TIMEOUT", f"{operators.UNREAD_TIMEOUT:.0f} s"),
        ("MAX_TOKENS", f"{tokens.MAX_TOKENS:,}"),
        ("MAX_SHOWN_NAME", f"{authorization.MAX_SHOWN_NAME} characters"),
        ("MAX_HIDDEN_ANSWER", f"{admission.MAX_HIDDEN_ANSWER // 1024**2} MiB"),
        ("MAX_TOKEN_NAME", f"{tokens.MAX_TOKEN_NAME} characters"),
        ("MAX_TOKEN_GROUPS", str(tokens.MAX_TOKEN_GROUPS)),
        ("MAX_TOKEN_LIFE", in_words(tokens.MAX_TOKEN_LIFE)),
        ("SECRET_LENGTH", f"{secret.SECRET_LENGTH} letters and digits"),
        ("MAX_FAILED", str(token_attempts.MAX_FAILED)),
        ("FAILED_WINDOW", f"{token_attempts.FAILED_WINDOW:.0f} s"),
        ("MAX_FAILING", f"{token_attempts.MAX_FAILING:,}"),
        ("TELL_FAILED", f"{token_attempts.TELL_FAILED:.0f} s"),
        ("CERTIFICATE_EVERY", f"{CERTIFICATE_EVERY:.0f} s"),
        ("MAX_TOKEN_FILE", f"{MAX_TOKEN_FILE:,} bytes"),
        ("MAX_HOST_BYTES", f"{control_fleet.MAX_HOST_BYTES // 1024**2} MiB"),
        ("MAX_NAME", f"{read.MAX_NAME} characters"),
        ("MAX_DOMAIN", str(read.MAX_DOMAIN)),
        ("MAX_DEPTH", str(yaml_events.MAX_DEPTH)),
        ("MAX_ALIASED", f"{yaml_events.MAX_ALIASED:,}"),
        ("MAX_DETAILED", f"{diff.MAX_DETAILED:,}"),
        ("MAX_LABELS", str(labels.MAX_LABELS)),
        ("MAX_TERMS", str(labels.MAX_TERMS)),
        ("MAX_FLEET_BYTES", f"{fleet.MAX_FLEET_BYTES // 1024**2} MiB"),
        ("DEFAULT_DOMAINS", str(build.DEFAULT_DOMAINS)),
        ("STEP", in_words(clock.STEP)),
        ("STALL", in_words(clock.STALL)),
        ("KEPT_IMPACTS", f"{simulated.KEPT_IMPACTS:,}"),
        ("MAX_SAID", f"{program.MAX_SAID:,} bytes"),
        ("MAX_ANSWER", f"{program.MAX_ANSWER:,} bytes"),
        ("MAX_REASON", f"{MAX_REASON} characters"),
        ("ASK_AGAIN", in_words(ASK_AGAIN)),
        ("CHECK_TIMEOUT", f"{CHECK_TIMEOUT:g} s"),
        ("END_GRACE", f"{program.END_GRACE:g} s"),
        ("GROUP_SHARE", str(GROUP_SHARE)),
        ("HISTORY_LEAST", in_words(history.HISTORY_LEAST)),
        ("PRUNE_EVERY", f"{history.PRUNE_EVERY:.0f} s"),
        ("MEANT_AT_MOST", str(history.MEANT_AT_MOST)),
        ("PRUNE_SLICE", str(PRUNE_SLICE)),
        ("MAX_SETTINGS_BYTES", f"{sources.MAX_SETTINGS_BYTES // 1024**2} MiB"),
        (
            "LEAST_SILENCE`, `LEAST_TIMEOUT",
            f"{in_words(validate.LEAST_SILENCE)}, {in_words(validate.LEAST_TIMEOUT)}",
        ),
        ("MAX_WORKERS", str(validate.MAX_WORKERS)),
        ("MAX_GUEST_ADDRESSES", str(values.MAX_GUEST_ADDRESSES)),
        ("MAX_SOCKET_PATH", f"{validate.MAX_SOCKET_PATH} bytes"),
        ("EXPIRES_SOON", f"{certificates.EXPIRES_SOON // 86_400} d"),
        ("ADMIN_ENDS_SOON", in_words(exposure.ADMIN_ENDS_SOON)),
        (
            "WATCH_SHARE`, `STATUS_EVERY`, `MAX_STATUS",
            f"{notifying.WATCH_SHARE}, {notifying.STATUS_EVERY:g} s,"
            f" {notifying.MAX_STATUS} characters",
        ),
        ("LINGER", f"{LINGER:g} s"),
        ("RESTART_FIRST`, `RESTART_MOST", f"{child.RESTART_FIRST} s, {child.RESTART_MOST:g} s"),
        ("LIVED_WELL", f"{child.LIVED_WELL:g} s"),
        ("HUNG", f"{supervisor.HUNG:g} s"),
        ("STARTING", f"{supervisor.STARTING:g} s"),
        ("AWAY_MOST", f"{supervisor.AWAY_MOST:g} s"),
        ("REREAD_WITHIN", f"{reload_all.REREAD_WITHIN:g} s"),
        ("SIGN_OF_LIFE", f"{process_main.SIGN_OF_LIFE:g} s"),
        ("STOP_WITHIN", f"{supervisor.STOP_WITHIN:g} s"),
        (
            "MAX_FRAME`, `MAX_GREETING",
            f"{messages.MAX_FRAME // 1024**2} MiB, {messages.MAX_GREETING:,} bytes",
        ),
        ("MAX_UNSENT", f"{hub.MAX_UNSENT // 1024**2} MiB"),
        ("HEARD_WITHIN", f"{hub.HEARD_WITHIN:g} s"),
        ("GATHER", f"{hub.GATHER:g} s"),
        ("ENDED_WITHIN", f"{fencing.ENDED_WITHIN:g} s"),
        ("QUIET`, `SILENT", f"{hub.QUIET:g} s, {hub.SILENT:g} s"),
        ("ANSWERED_WITHIN", f"{remote_upstream.ANSWERED_WITHIN:g} s"),
        (
            "TELL_FIRST`, `TELL_EVERY",
            f"{remote_upstream.TELL_FIRST:g} s, {remote_upstream.TELL_EVERY:g} s",
        ),
        (
            "MAX_WAITING`, `LAST_WORDS",
            f"{stderr.MAX_WAITING // 1024**2} MiB, {stderr.LAST_WORDS:g} s",
        ),
        ("SLICE", f"{request_parser.SLICE:,} bytes"),
        ("READ_SIZE", f"{READ_SIZE:,} bytes"),
        ("TURN`, `SHARE", f"{fair_queue.TURN:,}, {fair_queue.SHARE}"),
        (
            "STEP_COST`, `CHUNK_COST`, `REQUEST_COST`, `HAND_OVER_COST",
            f"{protocol.STEP_COST}, {protocol.CHUNK_COST}, {protocol.REQUEST_COST},"
            f" {front.HAND_OVER_COST}",
        ),
        ("BYTES_PER_UNIT", str(protocol.BYTES_PER_UNIT)),
        (
            "DISCARD_SECONDS`, `DISCARD_BYTES`, `DISCARD_SIZE",
            f"{protocol.DISCARD_SECONDS:g} s, {protocol.DISCARD_BYTES // 1024**2} MiB,"
            f" {front.DISCARD_SIZE:,} bytes",
        ),
        (
            "MAX_REFUSED`, `MAX_REFUSED_PER_MACHINE",
            f"{limits.MAX_REFUSED}, {limits.MAX_REFUSED_PER_MACHINE}",
        ),
        ("TRIM_ABOVE", f"{TRIM_ABOVE // 1024**2} MiB"),
        ("HOLD_MOST", f"{remote_upstream.HOLD_MOST:g} s"),
        ("MAX_CALLS`, `MAX_ASKED", f"{calls.MAX_CALLS:,}"),
        ("MAX_EARLIER", f"{poll_report.MAX_EARLIER:,}"),
        (
            "DIAL_FIRST`, `DIAL_MOST",
            f"{remote_upstream.DIAL_FIRST:g} s, {remote_upstream.DIAL_MOST:g} s",
        ),
        ("REPORT_EVERY", f"{remote_upstream.REPORT_EVERY:g} s"),
        ("FEED_PAGE", str(feed.FEED_PAGE)),
        ("MAX_STREAMS", f"{control_feed.MAX_STREAMS:,}"),
        ("KEEP_ALIVE", f"{control_feed.KEEP_ALIVE:.0f} s"),
        ("COME_BACK", f"{control_feed.COME_BACK:,} ms"),
        ("MAX_CHANGES_WAIT", f"{control_feed.MAX_CHANGES_WAIT} s"),
        ("LOOK_EVERY", f"{health.LOOK_EVERY:.0f} s"),
        ("MAX_VALUE", f"{log.MAX_VALUE:,} characters"),
        ("REMEMBERED", f"{otel.REMEMBERED:,}"),
        ("REMIND_EVERY", f"{saver.REMIND_EVERY:.0f} s"),
        ("BACKUP_CHUNK", f"{backup.BACKUP_CHUNK:,} bytes"),
        ("BACKUP_TAKEN_WITHIN", f"{backup.BACKUP_TAKEN_WITHIN:g} s"),
        ("MAX_LOOPBACK_PORTS", f"{loopback.MAX_LOOPBACK_PORTS:,}"),
        ("MAX_HELD", f"{relay.MAX_HELD // 1024} KiB"),
        ("MAX_ASKING", str(relay.MAX_ASKING)),
        ("END_WITHIN", f"{keeper.END_WITHIN:g} s"),
        ("NETWORK_WITHIN", f"{uplink.NETWORK_WITHIN:g} s"),
        ("CONNECT_WITHIN", f"{run.CONNECT_WITHIN:g} s"),
        ("FOLLOW_EVERY", f"{follow_clock.FOLLOW_EVERY:g} s"),
        (
            "LOOKERS_WITHIN`, `LOOK_AGAIN",
            f"{lock.LOOKERS_WITHIN:g} s, {lock.LOOK_AGAIN:g} s",
        ),
    ],
)
def test_every_fixed_limit_is_documented(name: str, value: str) -> None:
    assert f"| `{name}` | {value} |" in _settings()


def test_the_promised_notices_and_back_off_are_documented() -> None:
    notices = {type: in_words(promise.notice) for type, promise in events.PROMISES.items()}
    assert notices[EventType.FREEZE] == notices[EventType.REBOOT] == "15 min"
    for type in (EventType.REDEPLOY, EventType.PREEMPT, EventType.TERMINATE):
        assert f"{notices[type]} {type.value}" in _settings()
    pauses = in_words(BACK_OFF_FIRST), in_words(BACK_OFF_MOST)
    assert f"| {', '.join(pauses)} |" in _settings()


def test_how_far_numbers_go_on_after_a_restore_is_documented() -> None:
    for what in ("DOCUMENTS", "COMMITS"):
        least, each = (
            getattr(renumbering, f"{what}_LEAST"),
            getattr(renumbering, f"{what}_PER_SECOND"),
        )
        row = f"| `{what}_LEAST`, `{what}_PER_SECOND` | {least:,}, {each:,} |"
        assert row in _settings()


def test_every_kind_of_record_is_documented() -> None:
    text = (DOCS / "history.md").read_text()
    table = text.partition("| kind | what happened |")[2]
    assert [what.value for what in What if f"`{what.value}`" not in table] == []


def test_every_rule_of_the_judge_is_documented() -> None:
    text = (DOCS / "traces.md").read_text()
    assert [rule for rule in RULES if f"`{rule}`" not in text] == []


def _commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def test_every_command_of_the_readme_exists() -> None:
    known = set(_commands())
    used = set(re.findall(r"^(?:\$ )?forewarn ([a-z]+)\b", README.read_text(), re.MULTILINE))
    assert used
    assert used <= known


def test_every_command_is_documented() -> None:
    text = (DOCS / "commands.md").read_text()
    names = [
        f"{name} {one}".strip()
        for name, command in _commands().items()
        for one in getattr(command, "commands", {"": command})
    ]
    assert len(names) > 15
    assert [name for name in names if f"`forewarn {name}" not in text] == []


def test_the_readmes_test_passes(forewarn: Service) -> None:
    names: dict[str, object] = {}
    exec(_in_readme("python", "def test_"), names)
    test = names["test_fifteen_minutes_of_notice"]
    assert callable(test)
    test(forewarn)


def test_the_readmes_client_prepares_and_approves(
    forewarn: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Enough(Exception):
        pass

    web = forewarn.scale_set("web", 2)
    monkeypatch.setenv("FOREWARN_METADATA", web[0].url)
    web[1].restart()
    raised = [web[0].restart()]
    poll_report = []

    def prepare_for(event: object) -> None:
        poll_report.append(event)
        if len(poll_report) == 2:
            raise Enough
        raised.append(web[0].schedule("Freeze"))

    with pytest.raises(Enough):
        exec(_in_readme("python", "import Client"), {"prepare_for": prepare_for})
    assert [getattr(event, "id", None) for event in poll_report] == [event.id for event in raised]
    assert raised[0].status == "Started"


def test_the_readmes_agent_is_configured_like_that(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(_in_readme("toml", "[[rule]]"))
    assert [rule.name for rule in agent_reading.read(file).rules] == [
        "short freezes",
        "whatever stops me",
    ]


def _in_readme(language: str, word: str) -> str:
    """The one block of it with that in it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if word in block]
    assert isinstance(block, str)
    return block


def _settings() -> str:
    return (DOCS / "settings.md").read_text()
