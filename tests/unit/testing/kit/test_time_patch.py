"""Python's own time, while it is the service's."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time  # noqa: TID251 - what is patched
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest

from forewarn.testing import SAMPLE, RefusedError, Service
from helpers.waiting import until


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(SAMPLE) as made:
        yield made


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - what is patched


def test_patched_time_follows_the_clock_of_the_service(service: Service) -> None:
    service.clock.advance("1.234567s")
    with service.clock.patch():
        assert now() == service.clock.now
        for move in (service.clock.advance, service.clock.play, service.clock.interrupt):
            before = time.time()
            move("15m")
            assert time.time() - before == pytest.approx(900, abs=1e-5)
            assert now() == service.clock.now
            assert (
                time.time_ns() // 1_000
                == service._session.node.clock.now(service._session.node.config.rules).at
            )
            assert time.gmtime()[:5] == service.clock.now.timetuple()[:5]
            assert datetime.fromtimestamp(time.time(), UTC).date() == now().date()
    assert abs((now() - service.clock.now).total_seconds()) > 1


def test_patched_time_equals_the_date_of_an_answer(service: Service) -> None:
    with service.clock.patch():
        service.clock.advance("90s")
        answer = service.get("web_0")
        assert parsedate_to_datetime(answer.headers["date"]) == now()


def test_a_notice_can_be_measured_by_the_client_itself(service: Service) -> None:
    with service.clock.patch():
        service.schedule("Reboot", "web_0")
        [event] = service.document("web_0")["Events"]
        assert (parsedate_to_datetime(event["NotBefore"]) - now()).total_seconds() == 900
        service.clock.advance("10m")
        assert (parsedate_to_datetime(event["NotBefore"]) - now()).total_seconds() == 300


def test_a_clock_that_runs_by_itself_is_followed(service: Service) -> None:
    with service.clock.patch():
        begun = now()
        service.clock.resume(speed=1_000)
        until(lambda: now() > begun)
        service.clock.pause()
        assert now() == service.clock.now


def test_other_threads_see_the_patched_time(service: Service) -> None:
    found: list[datetime] = []
    with service.clock.patch():
        thread = threading.Thread(target=lambda: found.append(now()))
        thread.start()
        thread.join()
    assert found == [service.clock.now]


def test_monotonic_clocks_are_not_patched(service: Service) -> None:
    """A timeout is a timeout: loops, locks and sockets have to go on as before."""
    before = time.monotonic(), time.perf_counter()
    with service.clock.patch():
        service.clock.advance("7d")
        assert time.monotonic() - before[0] < 3_600
        assert time.perf_counter() - before[1] < 3_600
        assert not threading.Event().wait(0.001)


def test_the_time_zone_stays_the_same(service: Service) -> None:
    before = time.tzname, os.environ.get("TZ"), time.localtime(0)
    with service.clock.patch():
        service.clock.advance("1h")
        assert (time.tzname, os.environ.get("TZ"), time.localtime(0)) == before


def test_uuids_contain_the_patched_time(service: Service) -> None:
    with service.clock.patch():
        made = uuid.uuid1()
        since = (service.clock.now - datetime(1582, 10, 15, tzinfo=UTC)).total_seconds()
        assert made.time / 10_000_000 == pytest.approx(since, abs=1)


def test_a_test_that_fails_leaves_time_as_it_was(service: Service) -> None:
    before = now()
    with pytest.raises(ZeroDivisionError), service.clock.patch():
        _ = 1 / 0
    assert 0 <= (now() - before).total_seconds() < 3_600
    with service.clock.patch():
        assert now() == service.clock.now


def test_only_one_service_can_patch_the_time(service: Service) -> None:
    says = "Python's time follows a service's clock already"
    with Service(SAMPLE) as other, service.clock.patch():
        other.clock.advance("1h")
        for clock in (service.clock, other.clock):
            with pytest.raises(RefusedError, match=says), clock.patch():
                pass
        assert now() == service.clock.now
        service.clock.advance("1h")
        assert now() == service.clock.now
    with service.clock.patch():
        assert now() == service.clock.now


def test_patched_time_may_outlive_the_service() -> None:
    with Service(SAMPLE) as service:
        patch = service.clock.patch()
        patch.__enter__()
        stopped_at = service.clock.now
    assert now() == stopped_at
    patch.__exit__(None, None, None)
    assert now() != stopped_at


def test_patch_decorates_functions_and_coroutines(service: Service) -> None:
    @service.clock.patch()
    def called(by: str) -> datetime:
        service.clock.advance(by)
        return now()

    @service.clock.patch()
    async def awaited(by: str) -> datetime:
        await service.to_thread(service.clock.advance, by)
        await asyncio.wait_for(asyncio.Event().wait(), 0.001)
        return now()

    assert called("15m") == service.clock.now
    assert called.__name__ == "called"
    with pytest.raises(TimeoutError):  # the loop's own time goes on
        asyncio.run(awaited("15m"))
    assert called("15m") == service.clock.now


def test_requests_over_sockets_work_under_patched_time() -> None:
    with Service(SAMPLE, sockets=True) as service, service.clock.patch():
        for _ in range(3):
            service.clock.advance("30d")
            assert service.get("web_0").status == 200
            assert parsedate_to_datetime(service.get("web_0").headers["date"]) == now()


def test_without_time_machine_patching_is_refused_with_the_package_to_install(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "time_machine", None)
    with (
        pytest.raises(RefusedError, match=r"pip install 'forewarn\[test\]'"),
        service.clock.patch(),
    ):
        pass
