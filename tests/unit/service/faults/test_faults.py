"""Faults as counted resources: whom they meet, how often, when, and what is said of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.core import Refused
from forewarn.core.refusal import Reason
from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.node import Config, Node
from forewarn.service.faults import kinds, registry
from forewarn.service.faults.kinds import KINDS, FaultKind
from forewarn.service.faults.model import FaultAccount
from forewarn.service.faults.validate import NewFault
from forewarn.testing import RefusedError, Service


@pytest.fixture(scope="module")
def shared() -> Iterator[Service]:
    with Service() as service:
        service.scale_set("web", 3)
        service.scale_set("growing", 1)
        service.machine("jump")
        yield service


@pytest.fixture
def service(shared: Service) -> Iterator[Service]:
    yield shared
    shared.faults.clear()


def statuses(service: Service, times: int, machine: str = "web_0") -> list[int]:
    return [service.get(machine).status for _ in range(times)]


def test_a_fault_affects_its_number_of_requests_and_no_more(service: Service) -> None:
    fault = service.faults.add("gone", machine="web_0", times=3)
    assert (fault.consumed, fault.left, fault.status) == (0, 3, "active")
    assert statuses(service, 2) == [410, 410]
    assert fault._account.consumption == "2 of 3 consumed"
    assert statuses(service, 3) == [410, 200, 200]
    assert (fault.consumed, fault.left, fault.status) == (3, 0, "used up")
    assert fault.matches == 3, "what is used up is not asked any more"


def test_a_fault_without_a_number_stays_until_it_is_cleared(service: Service) -> None:
    fault = service.faults.add("error")
    assert statuses(service, 4) == [500] * 4
    assert (fault.left, fault._account.consumption) == (None, "4 consumed")
    fault.clear()
    assert statuses(service, 1) == [200]
    assert fault.consumed == 4, "what was is still known"
    fault.clear()


def test_a_fault_affects_only_the_machines_it_names(service: Service) -> None:
    by_name = service.faults.add("gone", machines=["web_0", "web_2"])
    assert [statuses(service, 1, name) for name in ("web_0", "web_1", "web_2", "jump")] == [
        *([410], [200], [410], [200])
    ]
    assert by_name.by_machine == {"web_0": 1, "web_2": 1}
    by_name.clear()
    service.faults.add("gone", group="web")
    assert [statuses(service, 1, name) for name in ("web_1", "jump")] == [[410], [200]]


def test_a_fault_takes_machines_and_groups_as_well_as_their_names(service: Service) -> None:
    web = service.scale_set("web", 3)
    for words in ({"machine": web[0]}, {"machines": [web[0]]}, {"machines": "web_0"}):
        with service.faults.during("gone", **words, lasts=0.5):
            assert (statuses(service, 1), statuses(service, 1, "web_1")) == ([410], [200])
    with service.faults.during("gone", group=web):
        assert (statuses(service, 1), statuses(service, 1, "jump")) == ([410], [200])


def test_skip_spares_the_first_requests(service: Service) -> None:
    fault = service.faults.add("error", machine="web_0", skip=2, times=1)
    assert statuses(service, 5) == [200, 200, 500, 200, 200]
    assert (fault.matches, fault.consumed) == (3, 1)


def test_a_request_is_affected_by_the_first_of_several_faults_only(service: Service) -> None:
    first = service.faults.add("gone", machine="web_0", times=2)
    second = service.faults.add("error", times=2)
    assert statuses(service, 1, "web_1") == [500]
    assert statuses(service, 4) == [410, 410, 500, 200]
    assert (first.matches, second.matches, second.consumed) == (2, 2, 2)


def test_a_fault_affects_only_its_method(service: Service) -> None:
    fault = service.faults.add("error", machine="web_0", method="POST", times=1)
    assert statuses(service, 2) == [200, 200]
    assert service.post("web_0", b"{}").status == 500
    assert service.post("web_0", b"{}").status == 400
    assert fault.consumed == 1


def test_a_window_is_on_the_services_clock(service: Service) -> None:
    fault = service.faults.add("gone", machine="web_0", starts_in="5m", lasts="70s")
    assert (statuses(service, 1), fault.status) == ([200], "waiting")
    service.clock.advance("5m")
    assert (statuses(service, 2), fault.status) == ([410, 410], "active")
    service.clock.advance("69s")
    assert statuses(service, 1) == [410]
    service.clock.advance("1s")
    assert (statuses(service, 1), fault.status) == ([200], "over")
    assert fault.consumed == 3


def test_the_same_seed_gives_the_same_sequence(service: Service) -> None:
    def sequence(seed: int) -> list[int]:
        with service.faults.during("error", machine="web_0", probability=0.5, seed=seed):
            return statuses(service, 40)

    once = sequence(7)
    assert {200, 500} == set(once)
    assert sequence(7) == once
    assert sequence(8) != once


def test_a_fault_without_a_seed_reports_the_seed_it_uses() -> None:
    def run() -> tuple[list[int], int]:
        with Service() as service:
            service.scale_set("web", 1)
            fault = service.faults.add("error", probability=0.3)
            return statuses(service, 30), fault._account.fault.seed

    assert run() == run()


def test_requests_that_a_fault_does_not_affect_leave_its_random_sequence_alone(
    service: Service,
) -> None:
    with service.faults.during("error", machine="web_0", probability=0.5, seed=1):
        alone = statuses(service, 20)
    with service.faults.during("error", machine="web_0", probability=0.5, seed=1):
        mixed = [(statuses(service, 1), statuses(service, 1, "web_1"))[0][0] for _ in range(20)]
    assert alone == mixed


def test_a_request_that_is_refused_anyway_does_not_use_up_a_fault(service: Service) -> None:
    fault = service.faults.add("error", machine="web_0", times=1)
    target = "/metadata/scheduledevents?api-version=2020-07-01"
    assert service.request("web_0", "GET", target).status == 400
    assert service.get("web_0", "1999-01-01").status == 400
    instance = "/metadata/instance?api-version=2021-02-01"
    assert service.request("web_0", "GET", instance, {"Metadata": "true"}).status == 200
    assert (fault.matches, fault.consumed) == (0, 0)
    assert statuses(service, 2) == [500, 200]


def test_during_lasts_as_long_as_its_block(service: Service) -> None:
    with service.faults.during("gone", machine="web_0") as fault:
        assert statuses(service, 1) == [410]
    assert (statuses(service, 1), len(service.faults), fault.consumed) == ([200], 0, 1)


def test_all_are_listed_in_order_and_cleared_together(service: Service) -> None:
    made = [service.faults.add(kind) for kind in ("gone", "slow", "vanish")]
    assert [fault.id for fault in service.faults] == [fault.id for fault in made]
    assert [fault.kind for fault in service.faults.list()] == ["gone", "slow", "vanish"]
    assert "gone: 0 consumed, active" in repr(made[0])
    service.faults.clear()
    assert service.faults.list() == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "gonne"}, "'gonne' is not a kind of fault; did you mean 'gone'?"),
    ({"kind": "gone", "machine": "web_9"}, "no machine 'web_9'; did you mean 'web_"),
    ({"kind": "gone", "group": "wep"}, "no group 'wep'; did you mean 'web'?"),
    ({"kind": "gone", "times": 0}, "times must be from 1 to 1000000, not 0"),
    ({"kind": "gone", "skip": -1}, "skip must be from 0 to 1000000, not -1"),
    ({"kind": "gone", "probability": 0}, "a probability must be above 0 and at most 1, not 0"),
    ({"kind": "gone", "probability": float("nan")}, "a probability must be above 0"),
    ({"kind": "gone", "seed": -1}, "a seed must be a whole number from 0"),
    ({"kind": "gone", "lasts": 0}, "a fault must last for some time"),
    (
        {"kind": "gone", "starts_in": "91d"},
        "a fault must begin within, and last at most, 7776000 seconds",
    ),
    ({"kind": "gone", "method": "PUT"}, "a method must be GET or POST, not 'PUT'"),
    ({"kind": "empty", "method": "POST"}, "a fault 'empty' is about documents"),
    ({"kind": "sudden", "method": "GET"}, "a fault 'sudden' affects events, not requests"),
    ({"kind": "gone", "seconds": 1}, "takes no seconds; those that do are slow, stalled"),
    ({"kind": "slow", "seconds": 121}, "takes from 0 to 120 seconds, not 121"),
    ({"kind": "slow", "seconds": float("inf")}, "takes from 0 to 120 seconds, not inf"),
    ({"kind": "gone", "status": 500}, "is fixed; only 'error' takes one"),
    ({"kind": "error", "status": 404}, "the status of an error must be from 500 to 599, not 404"),
    ({"kind": "gone", "body": "x"}, "takes no body; those that do are error, plain"),
    (
        {"kind": "error", "body": "x" * 65_537},
        "the body of a fault may have at most 65536 characters",
    ),
    (
        {"kind": "slow", "takes_effect": False},
        "a fault 'slow' has no option for whether an approval takes effect",
    ),
    ({"kind": "error", "method": "GET", "takes_effect": True}, "only an approval can take effect"),
    ({"kind": "gone", "machines": ["web_0"] * 1_001}, "for at most 1000 machines and groups"),
    ({"kind": "gone", "times": "3"}, "invalid fault: Expected `int | null`, got `str`"),
    ({"kind": "gone", "times": 2.5}, "invalid fault: Expected `int | null`, got `float`"),
    ({"kind": "gone", "machine": 5}, "invalid fault: Expected `str`, got `int`"),
    ({"kind": "gone", "lasts": "soon"}, "'soon' is not a duration; write for example"),
    ({"kind": "gone", "lasts": -1.5}, "'-1.500000' is not a duration; write for example"),
]


@pytest.mark.parametrize(("words", "says"), WRONG, ids=[says[:40] for _, says in WRONG])
def test_an_invalid_fault_is_refused_with_what_would_be_valid(
    service: Service, words: dict[str, Any], says: str
) -> None:
    kind = words["kind"]
    with pytest.raises(RefusedError) as refused:
        service.faults.add(kind, **{key: value for key, value in words.items() if key != "kind"})
    assert says in str(refused.value)
    assert len(service.faults) == 0


def test_the_number_of_faults_is_limited(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_FAULTS", 2)
    service.faults.add("gone", times=1)
    service.faults.add("gone", times=1)
    assert statuses(service, 2) == [410, 410]
    with pytest.raises(RefusedError, match=r"2 faults.*maximum"):
        service.faults.add("gone")


def test_a_fault_that_does_not_exist_cannot_be_found_or_cleared(service: Service) -> None:
    found = service._session.node.faults.find("f0")
    assert isinstance(found, Refused)
    assert (found.reason, "'f0'" in found.message) == (Reason.UNKNOWN, True)
    made = service.faults.add("gone")
    cleared = service._session.node.faults.clear("f0")
    assert isinstance(cleared, Refused)
    assert cleared.reason is Reason.UNKNOWN
    assert made.id in cleared.message
    assert len(service.faults) == 1


def test_a_fault_is_refused_where_faults_are_not_allowed() -> None:
    async def add() -> Refused | FaultAccount:
        async with Node(Config(virtual=1_800_000_000_000_000)) as node:
            assert isinstance(node.app, MetadataApp)
            return node.faults.add(NewFault(kind="gone"), "test")

    assert asyncio.run(add()) == registry.FORBIDDEN


def test_a_fault_of_a_group_affects_machines_that_join_it(service: Service) -> None:
    service.faults.add("gone", group="growing")
    service.scale_set("growing", 2)
    assert "growing_1" in service._session.node.endpoint.detours
    assert statuses(service, 1, "growing_1") == [410]


def test_only_machines_that_a_fault_can_affect_bypass_the_known_polls(service: Service) -> None:
    detours = service._session.node.endpoint
    assert "web_0" not in detours.detours
    one = service.faults.add("gone", machine="web_0", times=1)
    assert ("web_0" in detours.detours, "web_1" in detours.detours) == (True, False)
    everybody = service.faults.add("gone", times=1, skip=1)
    assert "web_1" in detours.detours
    everybody.clear()
    statuses(service, 1)
    assert (one.status, "web_0" in detours.detours) == ("used up", False)


def test_no_machine_bypasses_the_known_polls_for_a_fault_that_has_ended(service: Service) -> None:
    service.faults.add("gone", lasts="70s")
    assert statuses(service, 1) == [410]
    service.clock.advance("70s")
    assert "web_0" in service._session.node.endpoint.detours, "nobody has asked since"
    assert statuses(service, 1) == [200]
    assert "web_0" not in service._session.node.endpoint.detours
    assert not service._session.node.faults.meets_requests


def test_every_kind_is_described() -> None:
    assert [kind.value for kind in FaultKind] == [kind.value for kind in KINDS]
    assert kinds.MAX_DELAY == 120


def test_an_option_that_does_not_exist_is_refused(service: Service) -> None:
    with pytest.raises(TypeError, match="no option 'tims'"):
        service.faults.add("gone", tims=3)  # type: ignore[call-arg]
    assert len(service.faults) == 0
