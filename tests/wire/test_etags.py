"""Tags: what a client has already is not sent again, in whichever form it says so."""

from __future__ import annotations

import re

import pytest

from forewarn.testing import Service
from helpers.endpoint import (
    METADATA,
    NEWEST,
    VERSIONS,
    Caller,
    Groups,
    approval,
    events,
)
from helpers.raw_http import request

COUNT = 6
GET = request("GET", events(NEWEST), METADATA)


def test_a_matching_etag_is_answered_304(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
    service.schedule("Reboot", guest.name)
    for version in VERSIONS:
        tag = guest.get(version).header("etag")
        assert re.fullmatch(r'"[^"]+"', tag)
        bare = tag.strip('"')
        for form in (tag, bare, f"W/{tag}", f'"x", {tag}', f'W/"x",W/{tag},"y"', f"x, {bare}"):
            with guest.line() as line:
                line.send(request("GET", events(version), METADATA, f"If-None-Match: {form}"))
                answer = line.answer()
                assert answer.line == "HTTP/1.1 304 Not Modified"
                assert answer.header("etag") == tag
                assert answer.header("x-ms-request-id")
                assert set(answer.all("content-length")) <= {"0"}
                line.send(GET)
                assert line.answer().status == 200, "it had no body"


def test_a_tag_is_the_same_for_the_same_bytes_only(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    before = group[0].get().header("etag")
    assert group[1].get().header("etag") == before
    event = service.schedule("Reboot", group[0].name)
    scheduled = group[0].get(NEWEST, f"If-None-Match: {before}")
    assert scheduled.status == 200
    tags = {group[0].get(version).header("etag") for version in VERSIONS}
    bodies = {group[0].get(version).body for version in VERSIONS}
    assert len(tags) == len(bodies)
    group[0].approve(event.id)
    started = group[0].get(NEWEST, f"If-None-Match: {scheduled.header('etag')}")
    assert started.status == 200
    assert len({before, scheduled.header("etag"), started.header("etag")}) == 3


@pytest.mark.parametrize("form", ["0", '"0"', 'W/"0"', "1", '"1"', "2", '""', ",", "W/"])
def test_a_first_poll_with_a_tag_that_was_never_given_is_answered_in_full(
    guest: Caller, form: str
) -> None:
    answer = guest.get(NEWEST, f"If-None-Match: {form}")
    assert (answer.status, answer.body) == (200, guest.untouched)


def test_a_post_with_an_etag_is_not_answered_304(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    tag = guest.get().header("etag")
    for form in (f"If-None-Match: {tag}", "If-None-Match: 0", "If-None-Match: *", "If-Match: x"):
        answer = guest.post(approval(event.id), NEWEST, form)
        assert (answer.status, answer.body) == (200, b"")
    assert guest.statuses() == {event.id: "Started"}
