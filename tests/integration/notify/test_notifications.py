"""Notifications on their way: signed, in order, at least once, whatever the receiver does."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from forewarn.core import Refused
from forewarn.core.time import HOUR, MINUTE
from forewarn.notify import follower
from forewarn.store.memory import Disk
from helpers.hook_receivers import Web
from helpers.notifying_service import (
    received,
    secret_file,
    table,
    verified,
    webhook,
    world,
)
from helpers.paths import ROOT
from helpers.waiting import until_async

MONITORING = (ROOT / "docs" / "operate" / "monitoring.md").read_text()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "FIRST_PAUSE", 0.01)


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as receiver:
        yield receiver


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_webhook_gets_each_change_once_in_order_and_signed(tmp_path: Path, web: Web) -> None:
    async def play() -> None:
        async with world(webhook(tmp_path, web.port, timezone="Europe/Berlin")) as w:
            event = await w.reboot("web-0", description="new kernel", duration=9)
            await w.advance(30 * MINUTE)
            requests = await received(web, 3)
            bodies = [verified(request) for request in requests]
            assert [body["type"] for body in bodies] == ["raised", "started", "finished"]
            raised = bodies[0]["data"]
            assert raised["commit"]["events"][0]["id"] == event
            assert re.match("Reboot of web-0 .* 2027-01-15 09:15 CET", raised["subject"])
            assert "new kernel" in raised["text"]
            assert f"forewarn event approve {event}" in raised["text"]
            ids = [request.headers["webhook-id"] for request in requests]
            assert len(set(ids)) == 3
            await until_async(lambda: w.state().messages == 3)
            assert w.state().state == "ok"
            assert w.state().position == w.node.feed.seq

    run(play())


def test_a_failed_message_is_sent_again_with_the_same_id(tmp_path: Path, web: Web) -> None:
    web.answers = [(500, {}), (429, {"Retry-After": "0"}), (503, {})]

    async def play() -> None:
        async with world(webhook(tmp_path, web.port, kinds=["raised"])) as w:
            await w.reboot("web-0")
            await w.reboot("db-0")
            requests = await received(web, 5)
            first, second = requests[:4], requests[4:]
            assert len({request.headers["webhook-id"] for request in first}) == 1
            assert {verified(request)["data"]["commit"]["seq"] for request in first} == {
                verified(first[0])["data"]["commit"]["seq"]
            }
            assert second[0].headers["webhook-id"] != first[0].headers["webhook-id"]
            assert w.state().failures == 3

    run(play())


@pytest.mark.parametrize(
    ("status", "reason"),
    [(302, "redirects"), (410, "no more messages"), (403, "credentials")],
)
def test_a_target_that_refuses_is_reported_and_left_alone_until_a_reload(
    tmp_path: Path, web: Web, status: int, reason: str
) -> None:
    with Web() as elsewhere:
        web.answers = [(status, {"Location": f"http://127.0.0.1:{elsewhere.port}/"})]

        async def play() -> None:
            config = webhook(tmp_path, web.port)
            async with world(config) as w:
                await w.reboot("web-0")
                await until_async(lambda: w.state().state == "refused")
                state = w.state()
                where = f"http://127.0.0.1:{web.port}"
                assert re.match(f"{where} .* {status}: .*{reason}", state.last_error)
                assert "s3cr3t" not in state.where + state.last_error
                samples = {s.name: dict(s.samples) for s in w.notifications.readings()}
                documented = re.findall(r"`(forewarn_notify\w+?)(?:_total)?\{notify\}`", MONITORING)
                assert sorted(samples) == sorted(documented)
                assert samples["forewarn_notify_refused"] == {("ops",): 1}
                await w.configure(config)  # a reload: something may have been corrected
                await received(web, 2)
                await until_async(lambda: w.state().state == "ok")

        run(play())
        assert elsewhere.received == []


def test_receivers_that_hang_or_close_connections_do_not_delay_others(
    tmp_path: Path, web: Web
) -> None:
    """One accepts connections and never answers, one closes them."""
    silent = socket.create_server(("127.0.0.1", 0))

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def play() -> None:
        closing = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        ports = silent.getsockname()[1], closing.sockets[0].getsockname()[1], web.port
        tables = [
            webhook(tmp_path, port, name=name, webhook={"timeout": timeout})
            for name, port, timeout in zip(
                ("silent", "closing", "ops"), ports, ("1s", "30s", "30s"), strict=True
            )
        ]
        async with world(*tables) as w:
            await w.reboot("web-0")
            await received(web, 1)
            errors = {}

            def failed() -> bool:
                errors.update({s.name: s.last_error for s in w.notifications.states()})
                return bool(errors["silent"] and errors["closing"])

            await until_async(failed)
            assert re.match(f"http://127.0.0.1:{ports[0]}: .* 1 s", errors["silent"])
            assert errors["closing"].startswith(f"http://127.0.0.1:{ports[1]} ")
            assert errors["ops"] == ""
            await w.advance(16 * MINUTE)  # decisions go on
            await received(web, 2)
        closing.close()

    with silent:
        run(play())


def test_a_restart_resumes_where_delivery_ended(tmp_path: Path, web: Web) -> None:
    disk = Disk()
    web.answers = [(204, {}), *[(500, {})] * 1_000]

    async def play() -> None:
        config = webhook(tmp_path, web.port, kinds=["raised"])
        async with world(config, disk=disk) as w:
            for machine in ("web-0", "db-0", "web-1"):
                await w.reboot(machine)
            await received(web, 2)  # the first was delivered, the second refused
        async with world(config, disk=disk):
            web.answers.clear()
            await until_async(
                lambda: len({request.headers["webhook-id"] for request in web.received}) == 3
            )
        ids = list(dict.fromkeys(request.headers["webhook-id"] for request in web.received))
        assert len(ids) == 3
        assert web.received[0].headers["webhook-id"] == ids[0]
        assert [r.headers["webhook-id"] for r in web.received].count(ids[0]) == 1

    run(play())


def test_a_restart_resumes_within_a_commit(tmp_path: Path, web: Web) -> None:
    disk = Disk()
    web.answers = [(204, {}), *[(500, {})] * 1_000]

    async def play() -> None:
        config = webhook(tmp_path, web.port, kinds=["approved", "started"])
        async with world(config, disk=disk) as w:
            await w.node.platform.approve(await w.reboot("web-0"), "ann")
            await received(web, 2)  # of one commit, the first was delivered, the second refused
        async with world(config, disk=disk) as w:
            web.answers.clear()
            await until_async(lambda: w.state().messages == 1)
        first, *others = [verified(request) for request in web.received]
        assert first["type"] == "approved"
        assert {other["type"] for other in others} == {"started"}
        assert first["data"]["commit"]["seq"] == others[0]["data"]["commit"]["seq"]

    run(play())


def test_messages_that_are_too_old_are_skipped_and_counted(tmp_path: Path, web: Web) -> None:
    web.answers = [(500, {})] * 100_000

    async def play() -> None:
        config = webhook(tmp_path, web.port, kinds=["raised"], max_age="1h")
        async with world(config) as w:
            for machine in ("web-0", "db-0"):
                await w.reboot(machine, notice=6 * HOUR)
            await received(web, 1)
            await w.advance(2 * HOUR)
            await w.reboot("web-1", notice=6 * HOUR)
            await until_async(lambda: w.state().skipped == 2)
            web.answers.clear()
            await until_async(lambda: w.state().messages == 2)
            skipped, raised = (verified(request) for request in web.received[-2:])
            assert skipped["type"] == "skipped"
            assert skipped["data"]["skipped"]["count"] == 2
            assert skipped["data"]["subject"].startswith("2 ")
            assert raised["data"]["commit"]["events"][0]["machines"] == ["web-1"]

    run(play())


def test_commits_that_are_no_longer_stored_are_reported_as_skipped(
    tmp_path: Path, web: Web
) -> None:
    disk = Disk()

    async def play() -> None:
        config = webhook(tmp_path, web.port, kinds=["raised"])
        async with world(config, disk=disk) as w:
            await w.reboot("web-0")
            await received(web, 1)
            await until_async(lambda: w.state().messages == 1)
        async with world(disk=disk) as w:  # without the table, whose position is forgotten
            assert disk.notify_positions == {}
            await w.reboot("db-0")
        async with world(config, disk=disk) as w:
            await until_async(lambda: w.state().position == w.node.feed.seq)
        assert len(web.received) == 1  # it begins with the next change
        async with world(config, disk=disk) as w:
            await w.reboot("db-1")
            await received(web, 2)
        del disk.commits[:-1]
        position = disk.notify_positions["ops"]
        disk.notify_positions["ops"] = type(position)(name="ops", origin="o", after=2)
        async with world(config, disk=disk) as w:
            await received(web, 3)
        assert verified(web.received[2])["type"] == "skipped"

    run(play())


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_cloudevents_are_read_by_a_published_library(tmp_path: Path, web: Web, mode: str) -> None:
    web.answers = [(500, {})]

    async def play() -> None:
        target = {"url": f"http://127.0.0.1:{web.port}/", "mode": mode, "source": "/fleet"}
        async with world(table(cloudevents=target, kinds=["raised"])) as w:
            event = await w.reboot("web-0")
            parsed = []
            for request in await received(web, 2):
                headers = {name.lower(): value for name, value in request.headers.items()}
                parsed.append(from_http_event(HTTPMessage(headers, request.body)))
            first, again = parsed
            assert first.get_attributes() == again.get_attributes()
            assert first.get_type() == "forewarn.raised"
            assert first.get_source() == "/fleet"
            assert first.get_subject() == event
            assert str(first.get_time()) == "2027-01-15 08:00:00+00:00"
            data: Any = first.get_data()
            assert data["commit"]["events"][0]["id"] == event

    run(play())


def test_a_reload_keeps_the_position_of_a_table_that_has_changed(tmp_path: Path, web: Web) -> None:
    with Web() as other:
        other.answers = [(500, {})] * 100_000

        async def play() -> None:
            async with world(webhook(tmp_path, other.port)) as w:
                await w.reboot("web-0")
                await received(other, 1)
                await w.configure(webhook(tmp_path, web.port))
                requests = await received(web, 1)
                assert requests[0].headers["webhook-id"] == other.received[0].headers["webhook-id"]
                await w.configure()
                assert w.notifications.states() == []

        run(play())


def test_a_test_message_is_sent_once_and_returns_the_error(tmp_path: Path, web: Web) -> None:
    web.answers = [(204, {}), (401, {})]

    async def play() -> None:
        async with world(webhook(tmp_path, web.port)) as w:
            sent = await w.notifications.test("ops")
            refused = await w.notifications.test("ops")
            unknown = await w.notifications.test("opps")
        assert (sent.delivered, sent.error) == (True, "")  # type: ignore[union-attr]
        assert not refused.delivered  # type: ignore[union-attr]
        assert "401" in refused.error  # type: ignore[union-attr]
        assert isinstance(unknown, Refused)
        assert "'ops'" in str(unknown)
        assert verified(web.received[0])["type"] == "test"

    run(play())


def test_an_invalid_secret_is_an_error_that_does_not_show_it(tmp_path: Path, web: Web) -> None:
    async def play() -> None:
        wrong = {"secret_file": secret_file(tmp_path, "hunter2", "wrong")}
        async with world(webhook(tmp_path, web.port, webhook=wrong)) as w:
            await w.reboot("web-0")
            await until_async(lambda: w.state().failures)
            assert "whsec_" in w.state().last_error
            assert "hunter2" not in w.state().last_error
            secret_file(tmp_path, name="wrong")  # files are read for each message
            await received(web, 1)

    run(play())
