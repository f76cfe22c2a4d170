"""The life of a service inside a test: once, in its own thread and process, and to the end."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import sys
import threading
import unittest
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from forewarn.judge import judge_files
from forewarn.testing import SAMPLE, RefusedError, Service
from forewarn.testing.session import _run_loop


def threads() -> int:
    return sum(thread.name == "forewarn" for thread in threading.enumerate())


def test_a_service_used_before_its_start_is_refused() -> None:
    service = Service()
    for use in (
        lambda: service.scale_set("web", 1),
        lambda: service.clock.advance("1m"),
        lambda: service.url(),
        lambda: service.verdict(),
        lambda: service.events,
    ):
        with pytest.raises(RefusedError, match="has not started"):
            use()


def test_a_service_used_after_its_end_is_refused() -> None:
    with Service() as service:
        web = service.scale_set("web", 1)
        event = web[0].restart()
    for use in (
        lambda: service.scale_set("web", 2),
        lambda: web[0].restart(),
        lambda: web[0].document(),
        lambda: event.status,
        lambda: service.clock.advance("1m"),
    ):
        with pytest.raises(RefusedError, match="has stopped"):
            use()
    assert repr(event) == f"<Reboot {event.id} of web_0>", "a message still names it"
    with pytest.raises(RefusedError, match="only once"):
        service.__enter__()
    service.__exit__(None, None, None)  # which it has been already


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_the_service_stops_however_its_block_is_left(error: type[BaseException]) -> None:
    before = threads()
    service = Service(sockets=True)
    with pytest.raises(error), service:
        raise error
    assert threads() == before


@pytest.mark.parametrize(
    "part", ["forewarn.node.node.make_driver", "forewarn.testing.kit.service.FailureReport"]
)
def test_a_service_that_cannot_start_stops(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(part, refuse)
    before = threads()
    with pytest.raises(OSError, match="no"), Service():
        pytest.fail("it has not started")
    assert threads() == before


def test_an_interrupt_ends_a_wait() -> None:
    with Service() as service:
        begun, ended = threading.Event(), threading.Event()

        async def for_ever() -> None:
            begun.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.set()

        waiting = threading.Condition.wait.__code__
        main = threading.main_thread().ident
        assert main is not None

        def interrupt() -> None:
            begun.wait(30)
            while sys._current_frames()[main].f_code is not waiting:
                pass  # it is still handing the work over
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            service._session.run(for_ever())
        assert ended.wait(30), "nobody waits for it any more, so it does not go on"


def test_several_services_at_once_are_independent() -> None:
    with Service(sockets=True) as one, Service(SAMPLE, sockets=True) as two:
        one.scale_set("web", 1)[0].restart()
        assert one["web_0"].url != two["web_0"].url
        assert len(one["web_0"].document()["Events"]) == 1
        assert two["web_0"].document()["Events"] == []


@pytest.mark.parametrize("verb", ["document", "restart", "advance", "verdict"])
def test_requests_of_other_threads_while_the_service_stops_are_refused(verb: str) -> None:
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            while True:
                use()
        except BaseException as error:
            failed.append(error)

    for _ in range(3):
        with Service() as service:
            web = service.scale_set("web", 2)
            verbs: dict[str, Callable[[], object]] = {
                "document": web[0].document,
                "restart": web[1].restart,
                "advance": partial(service.clock.advance, 1),
                "verdict": service.verdict,
            }
            use = verbs[verb]
            use()
            asking = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
            for thread in asking:
                thread.start()
        for thread in asking:
            thread.join(30)
            assert not thread.is_alive(), "nobody answers it any more, and it waits all the same"
    assert {type(error) for error in failed} == {RefusedError}


def test_the_last_result_of_a_loop_is_delivered_before_the_loop_stops() -> None:
    loop = asyncio.new_event_loop()

    async def last() -> str:
        loop.stop()
        return "done"

    waiting = asyncio.run_coroutine_threadsafe(last(), loop)
    threading.Thread(target=_run_loop, args=[loop], daemon=True).start()
    assert waiting.result(30) == "done"


def test_a_call_from_the_own_thread_of_the_service_is_refused() -> None:
    with Service() as service, pytest.raises(RefusedError, match="own thread"):
        service._session.call(service._session.settle)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_cannot_use_the_service() -> None:
    with Service() as service:
        service.machine("jumpbox")
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads forks
            child = os.fork()
        if child == 0:
            try:
                service["jumpbox"].document()
            except RefusedError as refused:
                os.write(writing, str(refused).encode())
            service.__exit__(None, None, None)  # which leaves it alone
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        assert b"a fork" in os.read(reading, 1_000)
        os.close(reading)
        assert service["jumpbox"].document()["Events"] == []


def forget(things: list[Service]) -> None:
    things.clear()
    gc.collect()


def test_a_service_that_was_never_stopped_is_warned_about() -> None:
    before = threads()
    service = Service().__enter__()
    thread = service._session._thread
    assert thread is not None
    left = [service]
    del service
    with pytest.warns(ResourceWarning, match="was never stopped"):
        forget(left)
    thread.join(30)
    assert threads() == before


def test_sockets_are_opened_when_an_address_is_first_asked_for() -> None:
    with Service() as service:
        web = service.scale_set("web", 2)
        event = web[0].restart()
        assert web[0].url != web[1].url
        late = service.scale_set("web", 3)[2]
        asked = Request(
            f"{late.url}/metadata/scheduledevents?api-version=2020-07-01",
            headers={"Metadata": "true"},
        )
        with urlopen(asked) as answer:
            assert event.id in answer.read().decode()


@pytest.mark.parametrize("at_once", [True, False])
def test_machines_added_later_get_sockets(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system allows no socket for all of loopback."""
    monkeypatch.delattr(socket, "SO_BINDTODEVICE", raising=False)
    with Service(sockets=at_once) as service:
        first, url = service.machine("first"), service.url()
        late = service.scale_set("late", 2)
        assert service.url() == url
        for machine in (first, *late):
            target = f"{machine.url}/metadata/scheduledevents?api-version=2020-07-01"
            with urlopen(Request(target, headers={"Metadata": "true"})) as answer:
                assert answer.status == 200
            assert machine.get().status == 200
        assert service.scale_set("late", 3)[2].document()["Events"] == []


def test_the_control_api_is_started_once() -> None:
    with Service() as service:
        with ThreadPoolExecutor(4) as threads:
            found = set(threads.map(lambda _: service.control_url, range(4)))
        assert found == {service.control_url}
        with urlopen(f"{service.control_url}/v1/status") as answer:
            assert json.load(answer)["metadata"] == ""
        url = service.url()  # which is opened later than it
        with urlopen(f"{service.control_url}/v1/status") as answer:
            assert json.load(answer)["metadata"] == url


def test_recordings_of_the_kit_pass_the_judge(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    with Service(record=trace) as service:
        web = service.scale_set("web", 3, hosts=["rack-1", "rack-2"], terminate_notice="5m")
        with service.during(web[0].restart()):
            web[1].document()
        web[1].freeze().approve(by=web[2])
        web[1].document()
        web[2].delete().until_over()
        service.host("rack-1").fail()
        web[1].document()
    judgement = judge_files([trace])
    assert judgement.ok, judgement.render()
    assert judgement.exchanges == 4


class AnUnittest(unittest.TestCase):
    """As somebody without pytest would write it."""

    def setUp(self) -> None:
        self.service = self.enterContext(Service())

    def test_a_restart_is_announced(self) -> None:
        web = self.service.scale_set("web", 2)
        event = web[0].restart()
        self.assertIn(event, web[1].events)  # noqa: PT009 - as one writes it there


def test_the_kit_works_with_unittest() -> None:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(AnUnittest).run(result)
    assert (result.testsRun, result.errors, result.failures) == (1, [], [])


def test_an_interrupted_start_leaves_no_thread_behind() -> None:
    service = Service()
    begun = threading.Event()

    async def for_ever() -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    def interrupt() -> None:
        begun.wait(30)
        os.kill(os.getpid(), 2)

    service._session._node.__aenter__ = for_ever  # type: ignore[method-assign,assignment]
    threading.Thread(target=interrupt, daemon=True).start()
    before = threads()
    with pytest.raises(KeyboardInterrupt):
        service.__enter__()
    assert threads() == before
