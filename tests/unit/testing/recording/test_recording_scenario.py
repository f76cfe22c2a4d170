"""A life that was recorded, made a scenario and played again is the same life."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forewarn.judge import judge
from forewarn.testing import RefusedError, Service
from forewarn.testing.names import EventType
from forewarn.testing.recording import read
from forewarn.testing.scenarios import parse, scenario_text
from helpers.examples import examples

MACHINES = ("web_0", "web_1", "web_2", "FrontEnd_IN_0", "FrontEnd_IN_1", "jump")
WORDS = ("", "Host server is undergoing maintenance.", 'a "quoted": #one\twith \u2028 all, {of} it')

Deed = tuple[Any, ...]

deeds = st.one_of(
    st.tuples(
        st.just("schedule"),
        st.sampled_from(get_args(EventType)),
        st.sampled_from(MACHINES),
        st.integers(0, 1800),
        st.sampled_from(WORDS),
        st.integers(-1, 60),
    ),
    st.tuples(st.just("restart"), st.sampled_from(MACHINES)),
    st.tuples(st.just("fail"), st.sampled_from(MACHINES)),
    st.tuples(st.just("approve"), st.integers(0, 5)),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
    st.tuples(st.just("advance"), st.integers(1, 1_500_000).map(lambda ms: ms / 1000)),
)


def fleet(service: Service) -> None:
    service.scale_set("web", 3)
    service.cloud_service("shop", {"FrontEnd": 2})
    service.machine("jump")


def live(service: Service, life: Sequence[Deed]) -> None:
    """What is refused has not happened. Some time passes after each deed: what was there for none
    cannot be seen again."""
    for deed in life:
        try:
            _do(service, deed)
        except RefusedError:
            continue
        for machine in ("web_0", "FrontEnd_IN_0", "jump"):
            service.get(machine)
        service.clock.advance("0.25s")
    service.clock.advance("4h")


def _do(service: Service, deed: Deed) -> None:
    match deed:
        case "schedule", type, machine, notice, words, seconds:
            service.schedule(
                type,
                machine,
                notice=f"{notice}s",
                short_notice=True,
                description=words,
                duration=seconds,
            )
        case "restart", machine:
            service.restart(machine)
        case "fail", machine:
            service[machine].fail()
        case "approve", number if number < len(service.events):
            service.events[number].approve()
        case "cancel", number if number < len(service.events):
            service.events[number].cancel()
        case "advance", seconds:
            service.clock.advance(f"{seconds}s")


def moves(lines: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Every step of every event, without ids, by the time since the beginning."""
    heard = (line["t"] for line in lines if line["kind"] in ("exchange", "event"))
    zero = math.floor(next(heard, 0.0))
    struck = {line["event"] for line in lines if line.get("move") == "strike"}  # no NotBefore
    return sorted(
        (
            round(line["t"] - zero, 3),
            str(line["move"]),
            line["type"],
            line["source"],
            tuple(line["machines"]),
            line["event"] in struck or round(line["not_before"] - zero, 3),
            line["seconds"],
        )
        for line in lines
        if line["kind"] == "event" and line["listed"]
    )


def documents(lines: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """What was ever shown of events, without ids and times."""
    return {
        tuple(str(value) for key, value in event.items() if key not in ("EventId", "NotBefore"))
        for line in lines
        if line["kind"] == "exchange" and line["status"] == 200
        for event in json.loads(line["answer"])["Events"]
    }


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
@given(st.lists(deeds, min_size=1, max_size=12))
def test_a_recording_can_be_replayed_as_a_scenario(life: list[Deed]) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "life.jsonl"
        with Service(record=path) as service:
            fleet(service)
            live(service, life)
        recording = read([path])
    shown = moves(recording.lines)
    text = scenario_text(recording.lines, name="life")
    scenario = parse(text)
    with Service() as again:

        def look() -> None:
            for machine in ("web_0", "FrontEnd_IN_0", "jump"):
                again.get(machine)

        result = again.play_scenario(scenario, client=look)
    assert result.ok, str(result)
    assert moves(result.lines) == shown, text
    assert documents(result.lines) >= documents(recording.lines), text
    judgement = judge(result.lines)
    assert judgement.ok, judgement.render()


STEP = 5  # seconds between two looks


def test_a_recording_of_a_client_alone_can_be_replayed(tmp_path: Path) -> None:
    """Without a word of the service's own: neither its fleet, nor approvals, nor what it knows."""
    path = tmp_path / "seen.jsonl"
    with Service(record=path) as service:
        web = service.scale_set("web", 4)
        first = service.schedule("Freeze", web[1], notice="60s", short_notice=True, duration=5)
        waiting = service.schedule("Reboot", web[2], notice="90s", short_notice=True)
        for passed in range(0, 2400, STEP):
            web[0].get()
            match passed:
                case 30:
                    second = service.schedule("Redeploy", web[3], description="moved")
                case 100:
                    second.cancel()
                case 500:
                    third = service.restart("web_0")
                case 510:
                    third.approve()
                case 520:
                    service[web[3].name].fail()
            service.clock.advance(f"{STEP}s")
        assert first.over
        assert waiting.over
    reported = read([path]).lines
    seen = [line for line in reported if line["kind"] == "exchange"]
    scenario = parse(scenario_text(seen))
    with Service() as again:
        result = again.play_scenario(scenario, client=lambda: again.get("web_0"))
    assert result.ok, str(result)
    was, now = moves(reported), moves(result.lines)
    assert len(was) == len(now) == 13

    def key(move: tuple[Any, ...]) -> tuple[Any, ...]:
        return move[4], move[2], move[1]

    for before, after in zip(sorted(was, key=key), sorted(now, key=key), strict=True):
        assert key(before) == key(after)
        assert before[3] == after[3]
        assert abs(before[0] - after[0]) <= STEP
        assert before[5] == after[5]  # the very same NotBefore
