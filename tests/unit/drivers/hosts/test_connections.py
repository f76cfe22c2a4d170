"""Control and a driver process that was taken over: it acts and reports for its own hosts only."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from forewarn.drivers.hosts import connections as module
from forewarn.drivers.hosts.messages import (
    DRIVER_PROTOCOLS,
    Answered,
    Ask,
    DriverHello,
    DriverPing,
    DriverPong,
    DriverRefused,
    DriverWelcome,
    Progressed,
    Raised,
    ToDriver,
)
from forewarn.drivers.port import Done, Ok, Unknown
from forewarn.support import guard, message_stream, twins
from forewarn.support.message_stream import BrokenConnection, MessageStream, frame
from helpers.driver_processes import Fleet, machine, play, seen, task
from helpers.waiting import until_async

WEB_0, DB_0 = task(machine("web_0", "h1")), task(machine("db_0", "h2"), event="E2")


def hello(*hosts: str, **fields: Any) -> DriverHello:
    plain = DriverHello(
        protocols=DRIVER_PROTOCOLS,
        version="1",
        hosts=hosts or ("h1",),
        driver="by_hand",
        repeatable=False,
        works=False,
    )
    return msgspec.structs.replace(plain, **fields)


def reasons(directory: Path, body: Callable[[Fleet], Awaitable[None]]) -> list[str]:
    """Return what control logs as reasons."""
    with capture_logs() as logs:
        play(directory, body)
    return [entry["why"] for entry in logs if "why" in entry]


async def taken_over(control: Fleet, *hosts: str) -> MessageStream[ToDriver]:
    stream = await control.dial(*(hosts or ("h1",)))
    stream.send(hello(*hosts))
    assert isinstance(await stream.receive(), DriverWelcome)
    return stream


async def refused(stream: MessageStream[ToDriver]) -> None:
    """Wait until control has closed the connection."""
    with contextlib.suppress(BrokenConnection):
        while True:
            await stream.receive()


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (hello("h2"), "its certificate is for h1, and not for host 'h2'"),
        (hello("h1", "h2"), "its certificate is for h1, and not for host 'h2'"),
        (hello(protocols=(99,), version="9.9"), "upgrade the older one"),
        (hello(term=5), "it is of term 0, and there was 5 before"),
        (DriverPing(), "must send a hello first"),
    ],
)
def test_a_process_is_refused_in_one_sentence(
    tmp_path: Path, first: msgspec.Struct, reason: str
) -> None:
    async def body(control: Fleet) -> None:
        stream = await control.dial("h1")
        stream.send(first)
        answer = await stream.receive()
        assert isinstance(answer, DriverRefused)
        assert reason in answer.reason
        await refused(stream)
        assert control.connections.of("h1") is control.connections.of("h2") is None

    assert reason in reasons(tmp_path, body)[0]


def test_the_certificates_of_a_host_may_be_refused_later(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        stream = await taken_over(control)
        control.connections.problem = lambda host, _: "revoked" if host == "h1" else ""
        control.connections.look_at("h2")
        assert control.connections.of("h1")
        control.connections.look_at("h1")
        assert control.connections.of("h1") is None
        await refused(stream)
        again = await control.dial("h1")
        again.send(hello())
        assert await again.receive() == DriverRefused("revoked")

    play(tmp_path, body)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (hello(), "a second hello"),
        (Answered(1, Ok()), "it has answered perform with Ok"),
        (b"\0\0\0\1\xc1", "cannot be read"),
        (b"\x7f\xff\xff\xff", "are allowed"),
        (Raised(1, "x" * 5_000), "cannot be read"),
        (seen("db_0", host="h2"), "a report about host 'h2', which is not its own"),
        (seen("x" * 300), "cannot be read"),
    ],
    ids=repr,
)
def test_a_process_that_sends_what_it_must_not_is_kept_out_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: msgspec.Struct | bytes, why: str
) -> None:
    async def body(control: Fleet) -> None:
        stream = await taken_over(control)
        performing = control.tasks.start(control.driver.perform(WEB_0), "performing")
        assert isinstance(await stream.receive(), Ask)
        stream.send_frame(sent if isinstance(sent, bytes) else frame(sent))
        assert isinstance(await performing, Unknown)
        await refused(stream)
        await refused(await control.dial("h1"))
        now = guard.monotonic()
        monkeypatch.setattr(guard, "monotonic", lambda: now + module.BARRED_FOR + 1)
        await taken_over(control)

    assert any(why in logged for logged in reasons(tmp_path, body))


def test_a_process_answers_and_reports_for_nobody_else(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        hostile, honest = await taken_over(control, "h1"), await taken_over(control, "h2")
        performing = control.tasks.start(control.driver.perform(DB_0), "performing")
        ask = await honest.receive()
        assert isinstance(ask, Ask)
        assert ask.task.machines[0].name == "db_0"
        for message in (
            Answered(ask.id, Done()),
            Raised(ask.id, "made up"),
            Progressed(ask.id, "100 %"),
            DriverPing(),
        ):
            hostile.send(message)
        assert await hostile.receive() == DriverPong()
        assert control.progress == []
        assert not performing.done()
        honest.send(Progressed(ask.id, "half"))
        honest.send(Answered(ask.id, Done()))
        honest.send(Answered(ask.id, Done()))  # again has no effect
        assert await performing == Done()
        assert control.progress == [("E2", "half")]

    play(tmp_path, body)


def test_a_process_that_sends_too_much_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_stream, "BURST", 0.2)
    monkeypatch.setattr(module, "SENT_BY_PROCESS", 64 * 1024)

    async def body(control: Fleet) -> None:
        stream = await taken_over(control)
        while control.connections.of("h1"):
            stream.send(DriverPing())
            await guard.pause(0)

    assert any("bytes a second" in why for why in reasons(tmp_path, body))


def test_a_process_without_a_hello_or_with_a_huge_one_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HELLO_WITHIN", 0.05)

    async def body(control: Fleet) -> None:
        await refused(await control.dial("h1"))
        huge = await control.dial("h1")
        huge.send_frame(module.MAX_HELLO.to_bytes(4, "big")[:3] + b"\xff")
        await refused(huge)

    silent, too_long = reasons(tmp_path, body)
    assert "no hello" in silent
    assert "are allowed" in too_long


def test_few_connections_of_a_host_wait_to_be_served(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        streams = [await control.dial("h1") for _ in range(module.MAX_GREETINGS)]
        await until_async(lambda: control.connections._greeting["h1"] == module.MAX_GREETINGS)
        await refused(await control.dial("h1"))
        assert isinstance((await taken_over(control, "h2")), MessageStream)
        for stream in streams:
            stream.cut()
        await until_async(lambda: not control.connections._greeting)
        await taken_over(control)

    play(tmp_path, body)


def test_another_connection_takes_the_place_of_the_first(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        first = await taken_over(control, "h1", "h2")
        performing = control.tasks.start(control.driver.perform(DB_0), "performing")
        assert isinstance(await first.receive(), Ask)
        await taken_over(control, "h1")
        assert isinstance(await performing, Unknown)
        assert control.connections.of("h1") is not None
        assert control.connections.of("h2") is None
        await refused(first)

    play(tmp_path, body)


def test_neither_of_two_processes_with_the_certificate_of_a_host_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them has a stolen certificate, and says what has become of machines elsewhere."""

    async def body(control: Fleet) -> None:
        answers = []
        for name in ("one", "other") * 3:
            stream = await control.dial("h1")
            stream.send(hello(instance=name))
            answers.append(type(await stream.receive()))
        assert answers == [*[DriverWelcome] * 4, *[DriverRefused] * 2]
        assert control.connections.of("h1") is None
        await taken_over(control, "h2")
        now = guard.monotonic()
        monkeypatch.setattr(guard, "monotonic", lambda: now + twins.REMEMBERED)
        stream = await control.dial("h1")
        stream.send(hello(instance="one"))
        assert isinstance(await stream.receive(), DriverWelcome)

    assert module.TWO_PROCESSES in reasons(tmp_path, body)


def test_a_process_that_is_silent_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(control: Fleet) -> None:
        await taken_over(control)
        monkeypatch.setattr(module, "QUIET", 0.0)
        await until_async(lambda: control.connections.of("h1") is None)

    assert any("sent nothing" in why or "closed" in why for why in reasons(tmp_path, body))


def test_a_message_of_a_later_version_has_no_effect(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        stream = await taken_over(control)
        stream.send_frame(_framed({"type": "of a later version", "x": 1}))
        stream.send(DriverPing())
        assert await stream.receive() == DriverPong()
        assert control.connections.of("h1")

    play(tmp_path, body)


def _framed(message: dict[str, Any]) -> bytes:
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(4, "big") + data
