"""A rate, if one is asked for: per machine and second, and no reason to think a group dead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forewarn.metadata.endpoint.limits import Limits
from forewarn.support import guard
from forewarn.testing import Service
from helpers.endpoint import THROTTLED, Guest, fleet_of


class Stands:
    """The time by which rates are counted, in a test's hands."""

    now = 1.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def stands() -> Iterator[Stands]:
    stands = Stands()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "monotonic", stands)
        yield stands


@pytest.fixture(scope="module")
def throttled(stands: Stands) -> Iterator[Service]:
    with Service(
        fleet_of(2),
        sockets=True,
        front=True,
        limits=Limits(throttle=5),
        silence="24h",
    ) as service:
        yield service


def test_requests_of_a_machine_are_limited_per_second(throttled: Service, stands: Stands) -> None:
    stands.now += 60
    first, second = Guest(throttled, "web0_0"), Guest(throttled, "web0_1")
    assert [first.get().status for _ in range(5)] == [200] * 5
    for answer in (first.get(), first.approve("A"), first.instance()):
        assert answer.line == "HTTP/1.1 429 Too Many Requests"
        assert answer.body == THROTTLED
        assert answer.header("content-type") == "application/json; charset=utf-8"
        assert answer.header("x-ms-request-id")
    assert second.get().status == 200, "each machine for itself"
    stands.now += 1
    assert [first.get().status for _ in range(6)] == [200] * 5 + [429]


def test_a_throttled_get_keeps_the_group_enabled(throttled: Service, stands: Stands) -> None:
    stands.now += 60
    guest = Guest(throttled, "web1_0")
    guest.get()
    throttled.schedule("Reboot", guest.name, notice="7d")
    assert guest.incarnation() == 2
    assert [guest.get().status for _ in range(4)][-1] == 429
    for _ in range(3):
        throttled.clock.advance("23h")
        assert guest.get().status == 429
    stands.now += 60
    assert guest.incarnation() == 2, "the group was never disabled"
    throttled.clock.advance("25h")
    assert guest.incarnation() == 1, "and now it was"
