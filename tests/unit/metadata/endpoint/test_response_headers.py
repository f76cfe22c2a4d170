"""What stands on every answer: fresh ids in the form of a GUID, and the date of this second."""

from __future__ import annotations

import re

from forewarn.metadata.endpoint import response_headers as standing_module
from forewarn.metadata.endpoint.response_headers import SERVER, ResponseHeaders
from forewarn.wire.errors import MALFORMED

SECOND = 1_000_000
AT = 1_800_000_000 * SECOND
GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
MANY = 3 * 4_096 + 5  # so many that the last digits start over


def long(headers: ResponseHeaders) -> str:
    """An id as the endpoint takes it."""
    return dict(headers.headers(AT))["x-ms-request-id"]


def short(headers: ResponseHeaders) -> str:
    """An id as a poll that is answered at once takes it."""
    last = next(headers.last_digits, b"") or headers.renew()
    return (headers.lines + last).rpartition(b" ")[2].decode()


def test_every_request_id_is_unique_on_both_paths() -> None:
    headers = ResponseHeaders()
    headers.refresh(AT)
    ids = [(long, short)[n % 2](headers) for n in range(MANY)]
    ids += [short(headers) for _ in range(MANY)]
    ids += [long(headers) for _ in range(MANY)]
    assert len(set(ids)) == 3 * MANY
    assert all(GUID.fullmatch(id) for id in ids)


def test_two_processes_share_no_ids() -> None:
    one, other = ResponseHeaders(), ResponseHeaders()
    assert long(one)[:-12] != long(other)[:-12]


def test_a_request_id_keeps_its_form_when_the_counter_wraps() -> None:
    headers = ResponseHeaders()
    headers.refresh(AT)
    headers._first = standing_module._FIRST_DIGITS - 1
    headers._write()
    ids = [short(headers) for _ in range(4_096 + 1)]
    assert all(GUID.fullmatch(id) for id in ids)
    assert ids[-2].endswith("f" * 12)
    assert ids[-1].endswith("0" * 12)


def test_the_lines_are_written_once_a_second() -> None:
    headers = ResponseHeaders()
    headers.refresh(AT)
    lines = headers.lines
    headers.refresh(AT + SECOND - 1)
    assert headers.lines is lines
    headers.refresh(AT + SECOND)
    assert headers.lines.startswith(b"date: Fri, 15 Jan 2027 08:00:01 GMT\r\n")
    assert f"\r\nserver: {SERVER}\r\n".encode() in headers.lines


def test_the_date_of_one_path_updates_the_other() -> None:
    headers = ResponseHeaders()
    headers.refresh(AT)
    assert dict(headers.headers(AT + 5 * SECOND))["Date"] == "Fri, 15 Jan 2027 08:00:05 GMT"
    assert b"08:00:05" in headers.lines


def test_a_refusal_is_a_whole_answer_that_closes() -> None:
    head, _, body = ResponseHeaders().refusal(MALFORMED, AT).partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    found = dict(entry.split(": ", 1) for entry in lines)
    assert line == "HTTP/1.1 400 Bad Request"
    assert body == MALFORMED.body
    assert found["content-length"] == str(len(body))
    assert found["connection"] == "close"
    assert found["date"] == "Fri, 15 Jan 2027 08:00:00 GMT"
    assert GUID.fullmatch(found["x-ms-request-id"])
