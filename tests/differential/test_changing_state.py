"""With a Front and without, while things happen: documents change, machines go, callers are too
many, too slow or too frequent, and the service stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TypeAlias

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from differential.case import Case
from differential.cases import APPROVAL, LAST, POLL, POLLS, get, head, post
from differential.connections import same, settle
from differential.histories import START, busy, schedule
from differential.pair import Pair
from forewarn.core import EventType, Refused
from forewarn.core.time import MINUTE
from forewarn.metadata.endpoint.limits import Limits
from forewarn.node import Node
from forewarn.node.listening import serve
from forewarn.support import guard

Happening: TypeAlias = Callable[[Node], Awaitable[None]]
PREVIEW = POLLS["version 2017-03-01"]


class Time:
    """Guard time that stands still, but for what a test says."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = guard.monotonic()
        patch.setattr(guard, "monotonic", lambda: self.now)


# What may happen between two polls.


async def announced(node: Node) -> None:
    await node.platform.schedule(type=EventType.FREEZE, machines=("quiet",), by="test")


async def approved(node: Node) -> None:
    for event in node.platform.active():
        if event.group == "quiet":
            await node.platform.approve(event.id, "test")


async def withdrawn(node: Node) -> None:
    for event in node.platform.active():
        if event.group == "quiet":
            await node.platform.cancel(event.id, "test")


async def later(node: Node) -> None:
    await node.advance(node.writer.now().at + 7 * MINUTE)


async def disabled(node: Node) -> None:
    await node.platform.disable("quiet", "test")


async def removed(node: Node) -> None:
    assert node.config.fleet is not None
    group = node.config.fleet.groups["quiet"]
    done = await node.writer.submit("quiet", msgspec.structs.replace(group, machines=()))
    assert not isinstance(done, Refused)


async def restored(node: Node) -> None:
    assert node.config.fleet is not None
    done = await node.writer.submit("quiet", node.config.fleet.groups["quiet"])
    assert not isinstance(done, Refused)


HAPPENINGS: tuple[Happening, ...] = (
    *(announced, announced, approved, withdrawn, later, later, disabled, removed, restored),
)
REQUESTS = (
    POLL,
    POLL,
    POLL,
    PREVIEW,
    POLLS["tag: the same"],
    LAST,
    post(APPROVAL),
    get(b"/nothing"),
)
steps = st.lists(
    st.one_of(
        st.sampled_from(HAPPENINGS),
        st.tuples(st.integers(0, 2), st.sampled_from(REQUESTS)),
    ),
    min_size=3,
    max_size=14,
)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair(busy) as pair:
        yield pair


@settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(steps=steps)
def test_what_happens_between_two_polls_is_seen_at_once(
    pair: Pair, steps: list[Happening | tuple[int, bytes]]
) -> None:
    """On three connections that are kept: what is remembered of a request is never its answer."""
    for change in (restored, withdrawn, disabled):
        pair.both(change)

    async def live() -> None:
        with pair.lines("quiet", 3) as lines:
            for step in steps:
                if isinstance(step, tuple):
                    lines[step[0]].send(step[1])
                    await settle(lines)
                else:
                    await pair.happen(step)
            for line in lines:
                line.agree()

    pair.run(live())
    front, plain = (pair.learned(node, in_order=True) for node in pair.nodes)
    assert front == plain
    assert pair.broken == []


def test_an_approval_is_seen_by_the_next_poll_on_another_connection() -> None:
    async def waiting(node: Node) -> None:
        await node.guests.enable("quiet")
        await schedule(node, EventType.FREEZE, "quiet")

    with Pair(waiting) as pair:
        approval = post(APPROVAL.replace(b"00000003", b"00000001"))

        async def seen() -> list[bytes]:
            with pair.line("quiet") as one, pair.line("quiet") as other:
                for line, data in ((one, POLL), (other, approval), (one, POLL)):
                    line.send(data)
                    await settle([one, other])
                return one.agree() + other.agree()

        before, _, after, *_ = pair.run(seen())
        assert b'"Scheduled"' in before
        assert b'"Started"' in after


def test_a_client_that_does_not_read_gets_all_answers_later() -> None:
    """More answers than the system holds for a caller that reads none of them yet."""
    count = 180

    async def wordy(node: Node) -> None:
        await node.guests.enable("quiet")
        for _ in range(40):
            await schedule(node, EventType.FREEZE, "quiet", description="so " * 150)

    async def deaf(pair: Pair) -> None:
        with pair.line("quiet", room=4_096) as lines:
            for at in range(count):
                lines.send(POLL if at % 50 else PREVIEW)
                for _ in range(4):
                    await guard.pause(0)
            lines.finish()
            await settle([lines])
            await lines.over()
            front, plain = (same(received).whole for received in lines.received())
            assert front == plain
            assert front.count(b"HTTP/1.1 200 OK\r\n") == count

    with Pair(wordy) as pair:
        pair.run(deaf(pair))
        assert pair.front.front is not None
        assert 0 < pair.front.front.answered < count
        assert pair.front.front.handed_over == 1
        assert pair.learned(pair.front) == pair.learned(pair.plain)
        assert pair.broken == []


def test_a_client_that_polls_too_often_is_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    limits = Limits(throttle=3)

    async def asked(pair: Pair) -> None:
        with pair.line("quiet") as one, pair.line("quiet") as other:
            for line in (one, one, other, one, other, one):
                line.send(POLL)
                await settle([line])
            time.now += 0.5  # worth one and a half
            for line in (one, other, other):
                line.send(POLL)
                await settle([line])
            response = one.agree() + other.agree()
        assert [part[9:12] for part in response] == [
            *(b"200", b"200", b"429", b"429", b"200"),
            *(b"200", b"429", b"429", b"429"),
        ]

    with Pair(busy, limits=limits) as pair:
        pair.run(asked(pair))
        assert pair.learned(pair.front) == pair.learned(pair.plain)


@pytest.mark.parametrize("data", [POLL, head(verb=b"HEAD"), POLL[:20], b"\r\n"])
def test_a_client_with_too_many_connections_is_refused(data: bytes) -> None:
    async def crowded(pair: Pair) -> None:
        with pair.line("quiet") as first, pair.line("quiet") as second:
            for line in (first, second):
                line.send(data)
                await settle([line])
            with pair.line("quiet") as third:
                third.send(data)
                await settle([third])
                assert b" 429 " in third.agree()[0]
            first.finish()
            await settle([first])
            with pair.line("quiet") as fourth:
                fourth.send(POLL)
                await settle([fourth])
                assert b" 200 " in fourth.agree()[0]
            first.agree()
            second.agree()

    with Pair(busy, limits=Limits(max_connections_per_machine=2)) as pair:
        pair.run(crowded(pair))
        assert pair.broken == []


SLOW = {
    "idle": (POLL,),
    "idle after an error": (get(b"/nothing"),),
    "half a head": (POLL[:30],),
    "a poll and half a head": (POLL, POLL[:30]),
    "half a head behind a poll": (POLL + POLL[:30],),
    "half a line": (b"GE",),
    "empty lines": (POLL, b"\r\n"),
    "no body": (post(APPROVAL)[: -len(APPROVAL)],),
    "half a body": (POLL, post(APPROVAL)[:-5]),
    "a body that nobody reads": (head(b"Content-Length: 500"),),
}


@pytest.mark.parametrize("wait", [9.0, 11.0, 119.0, 121.0])
def test_a_connection_that_is_too_slow_is_closed(
    monkeypatch: pytest.MonkeyPatch, wait: float
) -> None:
    time = Time(monkeypatch)
    monkeypatch.setattr(serve, "SWEEP_EVERY", 0.002)

    async def slow(pair: Pair) -> dict[str, list[bytes]]:
        with pair.lines("quiet", len(SLOW)) as lines:
            for line, segments in zip(lines, SLOW.values(), strict=True):
                for segment in segments:
                    line.send(segment)
                    await settle([line])
            time.now += wait
            await settle(lines, leisurely=True)
            return {name: line.agree() for name, line in zip(SLOW, lines, strict=True)}

    with Pair(busy, limits=Limits()) as pair:
        received = pair.run(slow(pair))
        closed = {name for name, response in received.items() if response[-1] == b"closed"}
        idle = {name for name in SLOW if name.startswith("idle")}
        if wait > 120:
            assert closed == SLOW.keys()
        else:
            assert not closed & idle


def test_both_nodes_answer_alike_while_they_stop() -> None:
    """Whoever is connected is hung up on, and told nothing that was not owed."""
    response = (POLL, POLL[:30], get(b"/x"), POLL + b"G")
    with Pair(busy) as pair, pair.lines("quiet", len(response)) as lines:
        for line, data in zip(lines, response, strict=True):
            line.send(data)
        pair.run(settle(lines))
        pair.stop()
        pair.run(settle(lines))
        for line in lines:
            assert line.agree()[-1] == b"closed"
        assert pair.broken == []


def test_the_date_is_that_of_the_answer() -> None:
    with Pair(busy) as pair:
        for minutes in (31, 32):
            pair.both(partial(Node.advance, to=START + minutes * MINUTE))
            pair.agree(Case((POLL, POLLS["tag: the same"], LAST)))
            ((front, _),) = pair.received
            assert front.whole.count(b"date: Fri, 15 Jan 2027 08:%d:00 GMT\r\n" % minutes) == 3
