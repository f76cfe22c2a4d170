"""The body of a POST: which ids it approves, however it is written, or what is wrong with it."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.wire import errors
from forewarn.wire.errors import Problem
from forewarn.wire.requests import read_approval, write_approval

ID = "28512AF7-C957-4500-9BC4-842D6FB531E4"


@pytest.mark.parametrize(
    "body",
    [
        f'{{"StartRequests":[{{"EventId":"{ID}"}}]}}',
        f'{{"StartRequests":[{{"EventId":"{ID.lower()}"}}]}}',
        f'{{"DocumentIncarnation":5,"StartRequests":[{{"EventId":"{ID}"}}]}}',
        f'{{"DocumentIncarnation":"5","StartRequests":[{{"EventId":"{ID}"}}]}}',
        f'{{"DocumentIncarnation":null,"StartRequests":[{{"EventId":"{ID}"}}],"more":[1]}}',
        f'{{"StartRequests":[{{"EventId":"{ID}","EventStatus":"Scheduled"}}]}}',
        f'\n{{\r\n\t"StartRequests" : [\n {{ "EventId" : "{ID}" }}\n ]\n}}\n',
        f'\ufeff{{"StartRequests":[{{"EventId":"{ID}"}}]}}',
        f'{{"StartRequests":[{{"EventId":"\\u0032{ID[1:]}"}}]}}',
    ],
)
def test_an_approval_is_read_however_it_is_written(body: str) -> None:
    assert read_approval(body.encode()) == (ID,)


@pytest.mark.parametrize("more", ["1e400", "9" * 5_000])
@pytest.mark.parametrize(
    "body",
    [
        '{"More":[%s],"StartRequests":[{"EventId":"A"}]}',
        '{"StartRequests":[{"EventId":"A","B":%s}]}',
    ],
)
def test_what_is_ignored_is_not_converted(body: str, more: str) -> None:
    """Such numbers cannot be; smaller ones can, but take long."""
    assert read_approval((body % more).encode()) == ("A",)


@pytest.mark.parametrize("entry", ["1", "{}", "[]"])
def test_nothing_is_made_of_entries_that_follow_a_wrong_one(entry: str) -> None:
    body = f'{{"StartRequests":[{",".join([entry] * 20_000)}]}}'.encode()
    tracemalloc.start()
    try:
        assert read_approval(body) == errors.NO_EVENT_ID
        assert tracemalloc.get_traced_memory()[1] < 8 * len(body)
    finally:
        tracemalloc.stop()


def test_the_ids_stand_in_the_order_they_were_sent() -> None:
    body = b'{"StartRequests":[{"EventId":"b"},{"EventId":"A"},{"EventId":"B"}]}'
    assert read_approval(body) == ("B", "A", "B")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"StartRequests=1",
        b'{"StartRequests":[{"EventId":"A"}]} {}',
        b"{'StartRequests':[{'EventId':'A'}]}",
        b'{"StartRequests":[{"EventId":"\xff"}]}',
        b'{"StartRequests":[{"EventId":"A\n"}]}',
        b'{"StartRequests":[{"EventId":NaN}]}',
        b"[" * 60_000,
        b'{"a":' * 12_000,
        b"\x00",
    ],
)
def test_a_body_that_is_not_json_is_refused(body: bytes) -> None:
    assert read_approval(body) == errors.NOT_JSON


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"1",
        b'"StartRequests"',
        b"[]",
        b"{}",
        b'{"startRequests":[{"EventId":"A"}]}',
        b'{"StartRequests":null}',
        b'{"StartRequests":[]}',
        b'{"StartRequests":{"EventId":"A"}}',
        b'{"StartRequests":"A"}',
    ],
)
def test_a_body_without_start_requests_is_refused(body: bytes) -> None:
    assert read_approval(body) == errors.NO_START_REQUESTS


@pytest.mark.parametrize(
    "entry",
    [
        b"null",
        b"1",
        b'"A"',
        b"[]",
        b"{}",
        b'{"EventId":null}',
        b'{"EventId":1}',
        b'{"eventId":"A"}',
        b'{"EventId":["A"]}',
        b'{"EventId":{}}',
        b'{"EventId":123456789012345678901234567890}',
    ],
)
def test_an_entry_without_a_string_as_its_id_refuses_the_whole_approval(entry: bytes) -> None:
    for entries in (entry, b'{"EventId":"A"},' + entry, entry + b',{"EventId":"A"}'):
        assert read_approval(b'{"StartRequests":[' + entries + b"]}") == errors.NO_EVENT_ID


@given(st.lists(st.uuids().map(lambda id: str(id).upper()), min_size=1, max_size=5))
def test_a_written_approval_is_read(ids: list[str]) -> None:
    assert read_approval(write_approval(ids)) == tuple(ids)


def test_an_approval_is_written_as_the_documents_show_it() -> None:
    assert write_approval([ID]) == f'{{"StartRequests":[{{"EventId":"{ID}"}}]}}'.encode()


@given(st.binary(max_size=80))
def test_any_body_is_ids_or_a_problem(body: bytes) -> None:
    assert isinstance(read_approval(body), tuple | Problem)
