"""Fronts with one thing broken each: putting the cases to both nodes must find every one."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from differential.case import Case
from differential.cases import POLL, named
from differential.histories import busy, schedule
from differential.pair import Differs, Pair
from forewarn.core import EventType
from forewarn.metadata.endpoint.app import KnownPoll
from forewarn.metadata.http import front, known_polls
from forewarn.node import Node

Defect: TypeAlias = Callable[[pytest.MonkeyPatch, Pair], None]
AnswerPoll: TypeAlias = Callable[..., bytes | None]


def _answers(pair: Pair) -> AnswerPoll:
    return pair.front.endpoint.answer_poll


def _change(patch: pytest.MonkeyPatch, pair: Pair, change: Callable[[bytes], bytes]) -> None:
    """What Front answers, changed."""
    answers = _answers(pair)

    def changed(*asked: Any) -> bytes | None:
        answer = answers(*asked)
        return answer if answer is None else change(answer)

    patch.setattr(pair.front.endpoint, "answer_poll", changed)


def _replan(patch: pytest.MonkeyPatch, pair: Pair, **fields: object) -> None:
    """What Front takes a poll for, changed."""
    answers = _answers(pair)

    def changed(plan: KnownPoll, *asked: Any) -> bytes | None:
        other = copy.copy(plan)
        for name, value in fields.items():
            setattr(other, name, value)
        return answers(other, *asked)

    patch.setattr(pair.front.endpoint, "answer_poll", changed)


def _learn(patch: pytest.MonkeyPatch, as_if: Callable[[bytes], bytes]) -> None:
    """Take a chunk for another one."""
    learn = known_polls.learn
    patch.setattr(front, "known", lambda _data: None)
    patch.setattr(front, "learn", lambda data: learn(as_if(data)))


def has_its_headers_in_another_order(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _change(patch, pair, lambda a: re.sub(rb"(date: .*\r\n)(server: .*\r\n)", rb"\2\1", a))


def spells_a_header_otherwise(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _change(patch, pair, lambda answer: answer.replace(b"content-type", b"Content-Type"))


def sends_a_byte_too_much(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _change(patch, pair, lambda answer: answer + b"\n")


def gives_the_same_id_to_all(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    same = b"x-ms-request-id: 01234567-89ab-4cde-8f01-23456789abcd\r\n"
    _change(patch, pair, lambda answer: re.sub(rb"x-ms-request-id: .*\r\n", same, answer))


def does_not_look_at_tags(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _replan(patch, pair, if_none_match="")


def takes_any_tag_for_the_same(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _learn(patch, lambda data: re.sub(rb"If-None-Match: .*\r\n", b"If-None-Match: *\r\n", data))


def does_not_close(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _learn(patch, lambda data: data.replace(b"Connection: close", b"Connection: keep-alive"))


def closes(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _learn(patch, lambda data: data.replace(b"Connection: keep-alive", b"Connection: close"))


def knows_a_request_by_its_beginning(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    table: dict[bytes, KnownPoll | None] = {}
    learn = known_polls.learn

    def learnt(data: bytes) -> KnownPoll | None:
        plan = table[data[:70]] = learn(data)
        return plan

    patch.setattr(front, "known", lambda data: table.get(data[:70]))
    patch.setattr(front, "learn", learnt)


def knows_a_request_by_its_end(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _learn(patch, lambda data: data[data.rfind(b"GET /") :])


def ignores_what_follows_a_poll(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _learn(patch, lambda data: data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")


def does_not_see_a_length(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _learn(patch, lambda data: re.sub(rb"Content-Length: \d+\r\n", b"", data))


def does_not_see_a_coding(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _learn(patch, lambda data: data.replace(b"Transfer-Encoding: chunked\r\n", b""))


def takes_any_line_end(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _learn(patch, lambda data: re.sub(rb"\r?\n", b"\r\n", data))


def takes_any_version_of_http(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _learn(patch, lambda data: data.replace(b"HTTP/1.0", b"HTTP/1.1"))


def does_not_see_that_it_was_forwarded(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _learn(patch, lambda data: re.sub(rb"(?i)x-forwarded-for:.*\r\n", b"", data))


def does_not_ask_for_the_header(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    _learn(patch, lambda data: data.replace(b"Metadata: false", b"Metadata: true"))


def takes_everybody_for_one(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    answers, web = _answers(pair), pair.addresses["web_0"]

    def changed(plan: KnownPoll, _address: str, *asked: Any) -> bytes | None:
        return answers(plan, web, *asked)

    patch.setattr(pair.front.endpoint, "answer_poll", changed)


def remembers_its_answers(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    answers, kept = _answers(pair), dict[object, bytes | None]()

    def changed(plan: KnownPoll, address: str, *asked: Any) -> bytes | None:
        answer = answers(plan, address, *asked)
        found = kept.setdefault((plan, address), answer)
        fresh = re.search(rb"x-ms-request-id: .*\r\n", answer or b"")
        return found and fresh and re.sub(rb"x-ms-request-id: .*\r\n", fresh[0], found)

    patch.setattr(pair.front.endpoint, "answer_poll", changed)


def tells_nobody_who_asked(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    answers = _answers(pair)

    def changed(*asked: Any) -> bytes | None:
        answer = answers(*asked)
        if answer is not None and (polls := pair.front.poll_index.polls("quiet")):
            polls.count -= 1
        return answer

    patch.setattr(pair.front.endpoint, "answer_poll", changed)


def breaks_inside(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    def changed(*asked: Any) -> bytes | None:
        pair._loop.call_soon(lambda: [][0])
        return None

    patch.setattr(pair.front.endpoint, "answer_poll", changed)


DEFECTS: tuple[Defect, ...] = (
    has_its_headers_in_another_order,
    spells_a_header_otherwise,
    sends_a_byte_too_much,
    gives_the_same_id_to_all,
    does_not_look_at_tags,
    takes_any_tag_for_the_same,
    does_not_close,
    closes,
    knows_a_request_by_its_beginning,
    knows_a_request_by_its_end,
    ignores_what_follows_a_poll,
    does_not_see_a_length,
    does_not_see_a_coding,
    takes_any_line_end,
    takes_any_version_of_http,
    does_not_see_that_it_was_forwarded,
    does_not_ask_for_the_header,
    takes_everybody_for_one,
    remembers_its_answers,
    tells_nobody_who_asked,
    breaks_inside,
)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(busy) as pair:
        yield pair


def _life(pair: Pair) -> None:
    """Every case, and a change of the document between two polls."""

    async def more(node: Node) -> None:
        await schedule(node, EventType.FREEZE, "quiet")

    pair.agree_on(case for case in named().values() if len(case.whole) < 1_000)
    pair.agree(Case((POLL, POLL)))
    pair.both(more)
    pair.agree(Case((POLL, POLL)))


def test_a_front_with_nothing_broken_is_not_accused(pair: Pair) -> None:
    _life(pair)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_broken_front_is_caught(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, defect: Defect
) -> None:
    pair.call(lambda: defect(monkeypatch, pair))
    with pytest.raises(AssertionError) as found:
        _life(pair)
    if defect not in (tells_nobody_who_asked, breaks_inside):
        assert isinstance(found.value, Differs)
    monkeypatch.undo()
