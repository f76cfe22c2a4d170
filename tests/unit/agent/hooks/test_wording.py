"""How an event is told of, stage by stage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from forewarn.agent.hooks import wording
from forewarn.agent.hooks.contract import Call
from forewarn.support import guard

NOW = datetime(2026, 11, 15, 10, 31, 8, tzinfo=UTC)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "wall_us", lambda: round(NOW.timestamp() * 1_000_000))


def call(stage: str = "prepare", **event: Any) -> Call:
    reported = {"id": "E", "type": "Reboot", "resources": ["web_0"], "source": "Platform"} | event
    return msgspec.convert(
        {"hook": "mine", "stage": stage, "machine": "web_0", "event": reported}, Call
    )


def test_a_scheduled_event_is_described_with_the_time_left() -> None:
    event = {"not_before": "2026-11-15T10:46:06Z", "description": "Host server is undergoing."}
    assert wording.sentence(call(**event)) == (
        "web_0: Reboot in 14 min 58 s (Platform): Host server is undergoing."
    )


@pytest.mark.parametrize(
    ("reported", "says"),
    [
        (call("started"), "web_0: Reboot has started (Platform)."),
        (call("finished"), "web_0: Reboot is over (Platform)."),
        (call("withdrawn"), "web_0: Reboot is withdrawn and will not happen (Platform)."),
        (call(), "web_0: Reboot soon (Platform)."),
        (call(status="Started"), "web_0: Reboot has started (Platform)."),
        (call(not_before=(NOW - timedelta(hours=1)).isoformat()), "web_0: Reboot now (Platform)."),
        (call(not_before="2026-11-15 10:46"), "web_0: Reboot soon (Platform)."),
        (call(not_before="whenever", source=""), "web_0: Reboot soon."),
        (call("started", resources=["a", "b"]), "a, b: Reboot has started (Platform)."),
        (call("started", resources=[], type=""), "web_0: an event has started (Platform)."),
    ],
)
def test_every_stage_has_a_sentence(reported: Call, says: str) -> None:
    assert wording.sentence(reported) == says


def test_a_long_description_is_cut() -> None:
    assert len(wording.description(call(description="x" * 10_000))) == wording.MAX_DESCRIPTION
