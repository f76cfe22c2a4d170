"""Notifications for people: by Apprise, and one message for what happened meanwhile."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from forewarn.core.time import HOUR, MINUTE
from forewarn.notify import follower
from forewarn.notify.config import Notify
from forewarn.store.memory import Disk
from helpers.hook_receivers import Web
from helpers.notifying_service import received, secret_file, table, world
from helpers.waiting import until_async

SECRET = "s3cr3t"
FAILS: tuple[int, dict[str, str]] = (500, {})

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr'")  # of a plugin of Apprise


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "FIRST_PAUSE", 0.01)


def people(directory: Path, *receivers: Web, **fields: Any) -> Notify:
    """Return a table whose target json:// posts to web servers."""
    urls = [f"json://127.0.0.1:{web.port}/{SECRET}" for web in receivers]
    target = {"urls_file": secret_file(directory, "\n".join(["# chat", *urls]), "urls")}
    return table(apprise=target, **{"at_most_every": "0s", **fields})


def messages(web: Web) -> list[dict[str, str]]:
    return [json.loads(request.body) for request in web.received]


def test_a_message_says_what_when_and_why(tmp_path: Path) -> None:
    async def play(web: Web) -> str:
        config = people(tmp_path, web, kinds=["raised"], timezone="Europe/Berlin")
        async with world(config) as w:
            event = await w.reboot("web-0", description="new kernel", duration=90)
            await received(web, 1)
            return event

    with Web() as web:
        event = asyncio.run(play(web))
    (message,) = messages(web)
    assert re.match(r"Reboot of web-0 .* announced, .* 09:15 CET \(08:15Z\)$", message["title"])
    assert message["type"] == "info"
    first, empty, *lines = message["message"].splitlines()
    assert (first, empty) == (f"{message['title']}.", "")
    fields = dict(line.split(": ", 1) for line in lines)
    assert (fields["Why"], fields["By"], fields["Event"]) == ("new kernel", "ann", event)
    assert re.search("2027-01-15 09:15 CET .* 1 min 30 s", fields["When"])
    assert re.match("Reboot of web-0, .*web$", fields["What"])
    assert [f"forewarn event {verb} {event}" for verb in ("approve", "explain")] == [
        *fields.values()
    ][-2:]


def test_changes_during_a_failure_are_one_message(tmp_path: Path) -> None:
    """The service is stopped while it tries to send the second message."""
    disk = Disk()

    async def play(web: Web) -> None:
        config = people(tmp_path, web, kinds=["raised", "started", "host-failed"])
        async with world(config, disk=disk) as w:
            await w.reboot("web-0")
            await until_async(lambda: w.state().messages == 1)
            web.answers = [FAILS] * 1_000_000
            await w.reboot("db-0")
            await until_async(lambda: w.state().state == "failing")
            assert SECRET not in w.state().last_error
            await w.reboot("db-1")
            await w.advance(16 * MINUTE)
            await w.node.hosts.fail("h2", "ann")
        web.answers = []
        async with world(config, disk=disk) as w:
            await until_async(lambda: w.state().messages == 2)

    with Web() as web:
        asyncio.run(play(web))
    first, refused, *_, again, rest = messages(web)
    assert refused == again != first
    assert "Host h2" in rest["title"]
    assert rest["type"] == "failure"
    assert "Reboot of db-1" in rest["message"]


def test_one_message_is_not_too_old_while_its_latest_change_is_not(tmp_path: Path) -> None:
    async def play(web: Web) -> None:
        config = people(tmp_path, web, kinds=["raised"], max_age="1h", at_most_every="1h")
        async with world(config) as w:
            await w.reboot("web-0", notice=6 * HOUR)
            await until_async(lambda: w.state().messages == 1)  # and now an hour without another
            web.answers = [FAILS] * 1_000_000
            await w.reboot("db-0", notice=6 * HOUR)
            await w.advance(50 * MINUTE)
            await w.reboot("db-1", notice=6 * HOUR)
            await w.configure(config)  # a reload: it is tried at once
            await until_async(lambda: w.state().state == "failing")
            await w.advance(20 * MINUTE)
            failures = w.state().failures
            await until_async(lambda: w.state().failures > failures + 1 or w.state().skipped > 0)
            web.answers = []
            await until_async(lambda: w.state().messages == 2 or w.state().skipped > 0)
            assert w.state().skipped == 0

    with Web() as web:
        asyncio.run(play(web))
    message = messages(web)[-1]["message"]
    assert "db-0" in message
    assert "db-1" in message


def test_a_message_is_repeated_only_where_it_failed(tmp_path: Path) -> None:
    async def play(first: Web, second: Web) -> None:
        async with world(people(tmp_path, first, second, kinds=["host-failed"])) as w:
            await w.node.hosts.fail("h1", "ann", note="power")
            await received(second, 2)
            await until_async(lambda: w.state().messages == 1)
            assert SECRET not in w.state().where

    with Web() as first, Web() as second:
        second.answers = [FAILS]
        asyncio.run(play(first, second))
    assert len(first.received) == 1
    message = messages(second)[1]
    assert message["title"].startswith("Host h1 ")
    assert message["type"] == "failure"
    assert "Why: power" in message["message"]
