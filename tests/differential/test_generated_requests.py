"""With a Front and without: requests that hypothesis makes of parts, and what it makes of those."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from differential.case import Case
from differential.cases import APPROVAL, LAST, POLL, POLLS, TARGETS, VERSIONS, named
from differential.guided import WORDS
from differential.histories import AWAKE
from differential.pair import Differs, Pair, Shared

ENOUGH = settings(
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
WHOLE = [case.whole for case in named().values() if 0 < len(case.whole) < 1_000]

verbs = st.sampled_from([b"GET"] * 6 + [b"POST", b"HEAD", b"PUT", b"get", b"BREW"])
targets = st.sampled_from(
    [b"/metadata/scheduledevents?api-version=" + version for version in VERSIONS]
    + list(TARGETS.values())
)
versions = st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0"])
ends = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r\n ", b"\r"])
names = st.sampled_from(
    (
        *(b"Metadata", b"Connection", b"If-None-Match", b"Host", b"Accept", b"Content-Type"),
        *(b"User-Agent", b"Content-Length", b"Transfer-Encoding", b"Expect", b"Upgrade"),
        *(b"X-Forwarded-For", b"X-Anything", b"", b"metadata", b"CONNECTION", b"content-length"),
    )
)
colons = st.sampled_from([b": "] * 8 + [b":", b":\t ", b" : ", b""])
values = st.sampled_from(
    (
        *(b"true", b"close", b"keep-alive", b"upgrade", b"h2c", b"100-continue", b"0", b"5"),
        *(b"chunked", b"*", b"W/x", b"", b"false", b"identity", b"TRUE", b" true ", b"a\x00"),
        *(b"\xff", b"a" * 300),
    )
)
bodies = st.sampled_from([b""] * 6 + [b"hello", b"0\r\n\r\n", APPROVAL, POLL, b"5\r\nhello\r\n"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Something like a request; more often than not a whole one."""
    line = draw(verbs) + b" " + draw(targets) + b" " + draw(versions)
    headers = [b"Metadata: true"] if draw(st.integers(0, 4)) else []
    headers += [draw(names) + draw(colons) + draw(values) for _ in range(draw(st.integers(0, 3)))]
    lines = [line, *draw(st.permutations(headers)), b""]
    return b"".join(part + draw(ends) for part in lines) + draw(bodies)


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A case that is written down, with some of it changed."""
    data = draw(st.sampled_from(WHOLE))
    for _ in range(draw(st.integers(1, 4))):
        here = draw(st.integers(0, len(data)))
        there = min(len(data), here + draw(st.sampled_from((0, 1, 1, 2, 8, 40))))
        match draw(st.integers(0, 5)):
            case 0:
                data = data[:here] + data[there:]
            case 1:
                data = data[:there] + data[here:]
            case 2:
                data = data[:here] + draw(st.binary(min_size=1, max_size=2)) + data[there:]
            case 3:
                data = data[:here] + draw(st.sampled_from(WORDS)) + data[here:]
            case 4:
                other = draw(st.sampled_from(WHOLE))
                data = data[:here] + other[draw(st.integers(0, len(other))) :]
            case 5:
                data = data[:here] + data[here:there].swapcase() + data[there:]
    return data


@st.composite
def any_case(draw: st.DrawFn, parts: st.SearchStrategy[bytes]) -> Case:
    """Good polls in segments of their own, then the rest of it cut wherever."""
    polls = draw(st.lists(st.sampled_from([*POLLS.values(), LAST]), max_size=2))
    rest = b"".join(draw(st.lists(parts, min_size=1, max_size=3)))
    cuts = sorted(draw(st.sets(st.integers(0, len(rest)), max_size=4)))
    pieces = [rest[a:b] for a, b in zip([0, *cuts], [*cuts, len(rest)], strict=True)]
    return Case((*polls, *pieces, POLL), draw(st.sampled_from(AWAKE)))


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with Shared() as shared:
        yield shared


@pytest.fixture
def pair(shared: Shared) -> Pair:
    return shared.pair()


def agrees(pair: Pair, case: Case) -> None:
    found = pair.run(pair.difference(case))
    if found is not None:
        raise Differs([found])
    assert pair.unspoilt


@ENOUGH
@given(case=any_case(requests()))
def test_requests_made_of_parts_are_answered_alike(pair: Pair, case: Case) -> None:
    agrees(pair, case)


@ENOUGH
@given(case=any_case(spoilt()))
def test_changed_cases_are_answered_alike(pair: Pair, case: Case) -> None:
    agrees(pair, case)


@ENOUGH
@given(case=any_case(st.binary(max_size=60)))
def test_both_nodes_answer_any_bytes_alike(pair: Pair, case: Case) -> None:
    agrees(pair, case)
