"""With a Front and without: every case that is written down is answered alike, byte for byte."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from differential.case import Case, kept, read
from differential.cases import (
    APPROVAL,
    FRAMED,
    HEADERS,
    LINES,
    POLL,
    POLLS,
    SIZES,
    TE,
    chunked,
    cuts,
    get,
    head,
    in_bytes,
    named,
    padded,
    post,
    variants,
)
from differential.connections import Received, settle
from differential.histories import AWAKE, NOBODY, busy
from differential.pair import Pair, Shared
from forewarn.metadata.endpoint.callers import Identity
from forewarn.metadata.http.known_polls import MAX_KNOWN_POLLS
from forewarn.node import Node

CASES = named()
CLOSELY = (  # these are cut at every byte, the others here and there, each elsewhere
    *("get poll", "get tag: the same", "header upgrade: h2c", "header expect", "header a fold"),
    *("header length 0", "header close", "line http/1.0", "line verb HEAD", "line verb BREW"),
    *("framed body that is a poll", "framed chunked, a poll", "framed cl.te", "framed te.cl"),
    *("framed approval and a poll at once", "framed post of a poll", "many two polls"),
    *("many poll and garbage", "line bare lf", "target absolute", "many close and a poll at once"),
)
LONG = 600  # bytes from which on a case is cut only around the places that matter
PLACES = (3, 60, 100, 1_000, 2_047, 2_048, 2_049, 2_050, 8_192, 16_384)


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with Shared() as shared:
        yield shared


@pytest.fixture
def pair(shared: Shared) -> Pair:
    return shared.pair()


def test_a_case_can_be_written_down_and_read() -> None:
    for case in CASES.values():
        assert read(str(case)).whole == case.whole
        assert read(f"# why\n{case}") == Case(case.segments or (b"",), case.machine)
    odd = Case((b"\x00\xff\\\r\n> ", b"", b"a" * 100 + b"b\n\n"), NOBODY, hurried=True)
    assert read(str(odd)) == odd


@pytest.mark.parametrize("machine", AWAKE)
def test_every_case_is_answered_alike_whoever_asks(pair: Pair, machine: str) -> None:
    pair.agree_on(Case(case.segments, machine) for case in CASES.values())


def test_every_case_is_answered_alike_between_polls_and_in_other_pieces(pair: Pair) -> None:
    """Every other way for a case, and the others for the next one."""
    pair.agree_on(
        varied
        for number, case in enumerate(CASES.values())
        for varied in itertools.islice(variants(case), number % 2, None, 2)
    )


def test_every_short_case_is_answered_alike_in_single_bytes(pair: Pair) -> None:
    short = [single for case in CASES.values() for single in in_bytes(case)]
    pair.agree_on(sorted(short, key=lambda case: len(case.segments)))


@pytest.mark.parametrize("name", CLOSELY)
def test_some_cases_are_answered_alike_when_cut_at_every_byte(pair: Pair, name: str) -> None:
    pair.agree_on(cuts(CASES[name]))


def test_every_case_is_answered_alike_when_cut_somewhere(pair: Pair) -> None:
    def some() -> Iterator[Case]:
        for number, (name, case) in enumerate(CASES.items()):
            if len(case.whole) > LONG:
                for at in PLACES:
                    if at < len(case.whole):
                        yield Case((case.whole[:at], case.whole[at:]))
            elif name not in CLOSELY:
                yield from cuts(case, step=173, first=1 + 59 * number % 173)

    pair.agree_on(some())


def test_every_case_of_the_fuzzers_corpus_is_answered_alike(pair: Pair) -> None:
    pair.agree_on(kept().values())


def test_both_nodes_answer_alike_where_machines_are_known_by_their_source() -> None:
    with Pair(busy, identity=Identity.SOURCE) as pair:
        for machine in AWAKE:
            pair.agree_on(Case((data, POLL), machine) for data in POLLS.values())
            pair.agree_on(Case((POLL, *response), machine) for response in FRAMED.values())


def test_a_first_poll_enables_a_group_at_front_and_behind_it(pair: Pair) -> None:
    async def sleep(node: Node) -> None:
        await node.platform.disable("asleep", "test")

    for data in (*POLLS.values(), *LINES.values(), *(head(*lines) for lines in HEADERS.values())):
        pair.agree(Case((data,), "asleep"))
        pair.agree(Case((data, POLL), "asleep"))
        pair.both(sleep)


SOUND = {
    "an approval": post(APPROVAL),
    "an approval in chunks": head(TE, verb=b"POST") + chunked(APPROVAL),
    "a body that nobody reads": FRAMED["body that is a poll"][0],
    "chunks that nobody reads": FRAMED["chunked, a poll"][0],
    "a long one": padded(2_049),
    "an error": get(b"/nothing"),
    "head": head(verb=b"HEAD"),
    "connect": head(verb=b"CONNECT"),
    "an unknown verb": head(verb=b"BREW"),
    "an unknown verb with a body": head(b"Content-Length: 5", verb=b"BREW") + b"hello",
    "an offer": head(*HEADERS["upgrade: h2c"]),
    "an offer with a body": head(*HEADERS["upgrade: h2c"], b"Content-Length: 5") + b"hello",
    "a tag": POLLS["tag: the same"],
}


@pytest.mark.parametrize("name", SOUND)
def test_where_a_request_is_cut_does_not_matter(pair: Pair, name: str) -> None:
    """Nor does it whether pieces are read together: the answers are those to the whole."""
    whole = POLL + SOUND[name] + POLL
    places = sorted({*range(len(POLL) + 1, len(whole), len(whole) // 40), len(whole) - len(POLL)})
    pieces = [(whole,), (POLL, SOUND[name], POLL), *((whole[:at], whole[at:]) for at in places)]
    pair.agree_on(map(Case, pieces))
    received = pair.run(pair.exchanges([Case(response) for response in pieces]))
    assert {_without_ids(front) for front, _ in received} == {_without_ids(received[0][0])}


def test_no_connection_is_left_behind(pair: Pair) -> None:
    files = Path("/proc/self/fd")
    before = len(list(files.iterdir()))
    pair.agree_on(CASES.values())
    pair.run(settle([]))
    assert [node.endpoint.connections.total for node in pair.nodes] == [0, 0]
    assert len(list(files.iterdir())) == before


# That all this is not about nothing.

SHORT_WAY = {name: data for name, data in POLLS.items() if name != "an unknown header"}
DOUBTFUL = ("length", "expect", "upgrade", "forwarded", "two", "metadata", "a fold", "nul", "bare")
CLEAR = ("metadata", "host", "nothing", "two spaces before")
LONG_WAY = {
    "an escape": get(b"/metadata/scheduled%65vents?api-version=2020-07-01"),
    "an unknown header": POLLS["an unknown header"],
    "too long": SIZES["a poll of 2049"],
    **{name: head(*HEADERS[name]) for name in HEADERS if name.startswith(DOUBTFUL)},
    **{name: response[0] for name, response in FRAMED.items()},
    **{name: data for name, data in LINES.items() if not name.startswith(CLEAR)},
}


def test_ordinary_polls_are_answered_by_front(pair: Pair) -> None:
    for machine in ("quiet", "web_0", "FrontEnd_IN_0"):
        for name, data in SHORT_WAY.items():
            assert _ways(pair, Case((data, data), machine)) == (2, 0), name


def test_other_requests_are_handed_over_by_front(pair: Pair) -> None:
    for name, data in LONG_WAY.items():
        assert _ways(pair, Case((data,))) == (0, 1), name
        assert _ways(pair, Case((POLL, data))) == (1, 1), name


def test_a_connection_that_was_handed_over_does_not_return_to_front(pair: Pair) -> None:
    assert _ways(pair, Case((POLL, POLL, b"\r\n", POLL, POLL))) == (2, 1)


def test_polls_of_deleted_machines_and_unknown_callers_are_handed_over(pair: Pair) -> None:
    for machine in (AWAKE[3], NOBODY):
        assert _ways(pair, Case((POLL, POLL), machine)) == (0, 1)


def test_more_kinds_of_polls_than_are_remembered_are_answered_alike(pair: Pair) -> None:
    polls = [head(b"User-Agent: %d" % number) for number in range(MAX_KNOWN_POLLS + 100)]
    for response in (polls, polls[:200], polls[-200:]):
        every = [Case(tuple(response[at : at + 50])) for at in range(0, len(response), 50)]
        assert _ways(pair, *every) == (len(response), 0)


def _ways(pair: Pair, *cases: Case) -> tuple[int, int]:
    """How often these are answered at once, and how often handed over."""
    front = pair.front.front
    assert front is not None
    assert pair.plain.front is None
    answered, handed_over = front.answered, front.handed_over
    pair.agree(*cases)
    return front.answered - answered, front.handed_over - handed_over


def _without_ids(received: Received) -> tuple[bytes, ...]:
    lines = received.whole.split(b"\r\n")
    return tuple(line for line in lines if not line.startswith(b"x-ms-request-id: "))
