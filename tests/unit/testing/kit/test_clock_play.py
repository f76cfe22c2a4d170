"""Playing a clock: like winding it, but whoever polls sees every change."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec
import pytest

from forewarn.service.engine.catch_up import GUEST, CatchUp, Patience
from forewarn.service.fleet import edit
from forewarn.testing import SAMPLE, RefusedError, Service
from forewarn.testing.kit.inprocess import exchange
from forewarn.testing.session import caller_id
from forewarn.wire.extensions import WAIT
from helpers.counted_timeout import counted_timeout
from helpers.polling_threads import PATIENCE, Client, beside, guest
from helpers.waiting import until

WHOLE_LIFE = [[], ["Scheduled"], ["Started"], []]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with counted_timeout(monkeypatch):
        yield


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(SAMPLE) as made:
        yield made


def catch_up(service: Service) -> CatchUp:
    assert service._session.node.virtual_time is not None
    return service._session.node.virtual_time.catch_up


def waited_for(service: Service) -> set[str]:
    """Machines that still have to hear of something, whoever asked as them."""
    return {machine for machine, _ in catch_up(service)._owed}


def test_a_client_that_polls_sees_every_stage(service: Service) -> None:
    with Client(service, "web_0") as client:
        service.schedule("Reboot", "web_0")
        service.clock.play("25m")
        assert client.statuses == WHOLE_LIFE


def test_all_machines_of_the_group_see_the_event_and_no_others(service: Service) -> None:
    with (
        Client(service, "web_0") as one,
        Client(service, "web_3") as another,
        Client(service, "sql-0") as elsewhere,
    ):
        service.schedule("Reboot", "web_0")
        service.clock.play("25m")
        assert one.statuses == another.statuses == WHOLE_LIFE
        assert elsewhere.statuses == [[]]


def test_a_client_that_sends_etags_sees_every_stage(service: Service) -> None:
    with Client(service, "web_0", conditional=True) as client:
        service.schedule("Reboot", "web_0")
        service.clock.play("25m")
        assert client.statuses == WHOLE_LIFE
        assert 304 in client.answers


def test_a_client_that_approves_what_it_sees_is_in_time(service: Service) -> None:
    with Client(service, "web_0", act=Client.approve) as client:
        event = service.schedule("Reboot", "web_0")
        service.clock.play("25m")
        assert client.statuses == WHOLE_LIFE
    started = event._record
    assert started.approved is not None
    assert started.approved.by == "web_0"
    assert started.started_at is not None
    assert started.started_at < started.not_before


def test_a_client_whose_version_hides_the_event_is_waited_for(service: Service) -> None:
    with Client(service, "web_0", version="2017-08-01") as old, Client(service, "web_1") as new:
        service.schedule("Preempt", "web_2")
        service.clock.play("10m")
        assert new.statuses[:3] == [[], ["Scheduled"], ["Started"]]
        assert all(statuses == [] for statuses in old.statuses)
    assert waited_for(service) == set()


def test_a_client_that_stopped_polling_is_not_waited_for_forever(service: Service) -> None:
    guest(service, "web_0")
    service.schedule("Reboot", "web_0")
    assert waited_for(service) == {"web_0"}
    before = service.clock.now
    service.clock.play("25m", timeout=0.05)
    assert (service.clock.now - before).total_seconds() == 25 * 60


def test_a_silent_client_does_not_keep_others_from_seeing_every_stage(service: Service) -> None:
    guest(service, "web_1")
    with Client(service, "web_0") as client:
        service.schedule("Reboot", "web_0")
        service.clock.play("25m", timeout=3)
        assert client.statuses == WHOLE_LIFE


def test_requests_of_the_test_itself_are_not_waited_for(service: Service) -> None:
    service.document("web_0")
    service.schedule("Reboot", "web_0")
    assert waited_for(service) == {"web_0"}
    assert not service._session.run(catch_up(service).caught_up(Patience(caller=caller_id())))
    with beside(lambda: service.document("web_0")):
        pass  # somebody else's voice, which may ask again
    service.clock.advance("15m")
    assert service._session.run(catch_up(service).caught_up(Patience(0.5, caller=caller_id())))


def test_a_request_of_the_test_does_not_count_as_seen_by_the_client(service: Service) -> None:
    guest(service, "web_0")
    service.schedule("Reboot", "web_0")
    for _ in range(3):
        service.document("web_0")
    assert ("web_0", GUEST) in catch_up(service)._owed


@pytest.mark.parametrize("known", [True, False])
def test_a_long_polling_client_sees_every_stage(service: Service, known: bool) -> None:
    """Be it that it began long ago: it is there, and is answered at once."""
    statuses: list[list[str]] = []
    enough = threading.Event()

    def poll() -> None:
        tag = "*" if known else '"none"'
        while not enough.is_set():
            target = f"{WAIT}?api-version=2020-07-01&timeout={PATIENCE:g}s"
            headers = {"Metadata": "true", "If-None-Match": tag}
            asked = service.addresses["web_0"]
            answer = service._session.run(
                exchange(service._session.node.app, asked, "GET", target, headers)
            )
            if answer.status != 304:  # which shows it what time it is
                statuses.append([event["EventStatus"] for event in answer.json()["Events"]])
            tag = answer.headers["etag"]

    def waits() -> bool:
        return service._session.node.endpoint.extensions.waits_now("web_0")

    guest(service, "web_0")
    with beside(poll) as failed:
        until(waits)
        catch_up(service)._polls["web_0"][GUEST].last -= 3_600
        service.schedule("Reboot", "web_0")
        service.clock.play("25m")
        assert statuses[-3:] == WHOLE_LIFE[1:]
        enough.set()
        service.schedule("Freeze", "web_1")  # the answer that it ends with
    assert failed == []
    assert not waits()


def test_a_long_polling_client_is_never_considered_silent(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest(service, "web_0")
    catch_up(service)._polls["web_0"][GUEST].last -= 3_600
    service.schedule("Freeze", "web_0")
    assert not service._session.run(catch_up(service).caught_up())
    monkeypatch.setattr(catch_up(service), "waiting", lambda machine: machine == "web_0")
    service.schedule("Freeze", "web_1")
    assert service._session.run(catch_up(service).caught_up(Patience(0.05)))


def test_a_machine_that_was_removed_is_not_waited_for(service: Service) -> None:
    guest(service, "jumpbox")
    guest(service, "web_3")
    service.schedule("Freeze", "web_0")
    assert waited_for(service) == {"web_3"}
    change = service._session.node.fleet_apply.change(
        edit.remove_machine("web_3"), by="test", force=True
    )
    service._session.run(change)
    assert waited_for(service) == set()
    assert set(catch_up(service)._polls) == {"jumpbox"}


def test_an_evicted_machine_is_not_waited_for(service: Service) -> None:
    with Client(service, "web_2") as client, Client(service, "web_0") as other:
        service["web_2"].evict()
        service.clock.play("10m")
        assert client.statuses == [[], ["Scheduled"], ["Started"]]
        assert other.statuses == WHOLE_LIFE
    assert waited_for(service) <= {"web_0"}
    assert "web_2" not in catch_up(service)._polls


def test_a_disabled_group_is_not_waited_for(service: Service) -> None:
    guest(service, "web_0")
    service.schedule("Reboot", "web_0")
    assert waited_for(service) == {"web_0"}
    service.disable("web")
    assert waited_for(service) == set()


def test_changes_made_by_other_threads_during_a_play_are_waited_for(service: Service) -> None:
    """The operator approves while the clock is played; the client misses nothing of it."""
    approved: list[Any] = []

    def approve(client: Client, document: Any) -> None:
        if client.statuses == WHOLE_LIFE[:2] and not approved:
            [event] = document["Events"]
            say = service._session.node.platform.approve(event["EventId"], "operator")
            approved.append(service._session.run(say))

    with Client(service, "web_0", act=approve) as client:
        service.schedule("Reboot", "web_0")
        service.clock.play("1s")
        assert client.statuses == WHOLE_LIFE[:3]
        service.clock.play("24m")
        assert client.statuses == WHOLE_LIFE


def test_two_plays_at_once_take_turns(service: Service) -> None:
    begun = service.clock.now
    with Client(service, "web_0") as client:
        service.schedule("Reboot", "web_0")
        with beside(lambda: service.clock.play("25m")) as failed:
            service.clock.play("20m")
        assert failed == []
        assert client.statuses == WHOLE_LIFE
    assert 25 <= (service.clock.now - begun).total_seconds() / 60 <= 45


def test_a_play_during_which_the_service_stops_is_refused() -> None:
    with ExitStack() as later, Service(SAMPLE) as service:
        guest(service, "web_0")
        service.schedule("Reboot", "web_0")
        play = partial(service.clock.play, "25m", timeout=3_600)
        failed = later.enter_context(beside(play))
        until(lambda: bool(catch_up(service)._behind))
    assert [type(error) for error in failed] == [RefusedError]
    assert "has stopped" in str(failed[0])


def test_play_goes_no_further_than_asked(service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    with Client(service, "web_0") as client:
        reached = service.clock.play("1h", until=lambda: event.status == "Started")
        assert reached
        assert client.statuses[-1] == ["Started"]
    assert service.clock.now.timestamp() == event._record.not_before / 1e6


def lives(wind: str, seed: int) -> dict[str, Any]:
    """What becomes of a fleet: the same script, wound, or played before clients that look on."""
    chance = random.Random(seed)
    ids = (f"00000000-0000-0000-0000-{n:012}" for n in range(10_000))
    with ExitStack() as stack:
        service = stack.enter_context(Service(SAMPLE, new_id=lambda: next(ids)))
        machines = list(service.addresses)
        clients = [
            stack.enter_context(Client(service, machine, pause=0.001))
            for machine in ("web_0", "sql-0", "jumpbox")
        ]
        refused = []
        for _ in range(12):
            verb = chance.choice(["Freeze", "Reboot", "restart", "cancel", "wind", "wind"])
            machine, length = chance.choice(machines), f"{chance.randint(1, 900)}s"
            try:
                if verb == "wind":
                    getattr(service.clock, wind)(length)
                elif verb == "restart":
                    service.restart(machine)
                elif verb == "cancel":
                    service.cancel(
                        chance.choice([e.id for e in service._session.node.platform.active()])
                    )
                else:
                    service.schedule("Freeze" if verb == "Freeze" else "Reboot", machine)
            except (RefusedError, IndexError) as error:
                refused.append(str(error))
        getattr(service.clock, wind)("2h")
        groups = service._session.call(lambda: service._session.node.store.groups.values())
        if wind == "play":
            shown = {machine.name: g.incarnation for g in groups for machine in g.machines}
            assert [c.incarnations[-1] for c in clients] == [shown[c.machine] for c in clients]
        return {
            "now": service.clock.now,
            "groups": [msgspec.structs.replace(group, seen=0) for group in groups],
            "documents": {machine: service.document(machine) for machine in machines},
            "refused": refused,
        }


@pytest.mark.parametrize("seed", range(2))
def test_play_and_advance_lead_to_the_same_state(seed: int) -> None:
    assert lives("play", seed) == lives("advance", seed)


def test_an_answer_spoiled_by_a_fault_does_not_count_as_seen(service: Service) -> None:
    with Client(service, "web_0") as client:
        service.faults.add("error", machine="web_0", times=3)
        service.schedule("Reboot", "web_0")
        service.clock.play("25m")
        assert client.statuses == WHOLE_LIFE
        assert client.answers.count(500) == 3


def test_a_client_that_only_gets_invalid_answers_is_not_waited_for_forever(
    service: Service,
) -> None:
    with Client(service, "web_0") as client:
        service.faults.add("empty", machine="web_0")
        service.schedule("Reboot", "web_0")
        service.clock.play("25m", timeout=0.1)
        assert client.statuses == [[]]
