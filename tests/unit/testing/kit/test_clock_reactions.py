"""A clock that waits for clients also lets them react, and its caller sees every change."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.request import Request, urlopen

import pytest

from forewarn.service.engine.catch_up import GUEST, POLL_PATIENCE, PREPARE_FACTOR
from forewarn.testing import Event, Group, Impact, RefusedError, Service
from forewarn.wire.requests import write_approval
from helpers.counted_timeout import Patience, counted_timeout
from helpers.polling_threads import PATIENCE, Client, beside, guest
from helpers.waiting import until

LONG = 60.0  # real seconds, for what happens much earlier
SHORT = 0.2  # real seconds for a client that is known to have ended


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[Patience]:
    with counted_timeout(monkeypatch) as counted:
        yield counted


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as made:
        yield made


@pytest.fixture
def web(service: Service) -> Group:
    return service.scale_set("web", 3, spot=True, terminate_notice="5m")


class Background:
    """A client that prepares in a thread while it goes on polling, and approves in the end."""

    def __init__(self, after_polls: int = 20) -> None:
        self._after_polls = after_polls
        self._begun = False
        self.prepared = threading.Event()

    def __call__(self, client: Client, document: Any) -> None:
        for event in document["Events"]:
            mine = client.machine in event["Resources"]
            if event["EventStatus"] == "Scheduled" and mine:
                self.begin(client, event["EventId"])

    def begin(self, client: Client, event: str) -> None:
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._prepare, args=(client, event)).start()

    def _prepare(self, client: Client, event: str) -> None:
        client.polls(self._after_polls)
        client.ask("POST", {}, write_approval([event]))
        self.prepared.set()


class ShortlyBefore:
    """A client that prepares when there are at most so many minutes left, as the `Date` of its
    answers says, and approves then."""

    def __init__(self, minutes: int = 2) -> None:
        self._lead = timedelta(minutes=minutes)

    def __call__(self, client: Client, document: Any) -> None:
        now = parsedate_to_datetime(client.headers["date"])
        for event in document["Events"]:
            scheduled, not_before = event["EventStatus"] == "Scheduled", event["NotBefore"]
            if scheduled and parsedate_to_datetime(not_before) <= now + self._lead:
                self.prepare(client, event["EventId"])

    def prepare(self, client: Client, event: str) -> None:
        client.ask("POST", {}, write_approval([event]))


class ShortlyBeforeInBackground(ShortlyBefore):
    """No patience is lost while it prepares, however slowly that goes."""

    def __init__(self, patience: Patience, minutes: int = 2) -> None:
        super().__init__(minutes)
        self._patience = patience
        self._begun = False

    def prepare(self, client: Client, event: str) -> None:
        if not self._begun:
            self._begun = True
            self._patience.stand_still()
            threading.Thread(target=self._approve, args=(client, event)).start()

    def _approve(self, client: Client, event: str) -> None:
        client.polls(20)
        client.ask("POST", {}, write_approval([event]))
        self._patience.go_on()


def started_before(event: Event) -> timedelta:
    assert event.started_at is not None
    return event.not_before - event.started_at


def play(service: Service, _: Event) -> None:
    service.clock.play("1h", reaction_time=LONG)


def play_until(service: Service, event: Event) -> None:
    service.clock.play("1h", until=lambda: event.over, reaction_time=LONG)


def until_over(_: Service, event: Event) -> None:
    event.until_over(reaction_time=LONG)


def until_started(_: Service, event: Event) -> None:
    event.until_started(reaction_time=LONG)


def during(service: Service, event: Event) -> None:
    with service.during(event, reaction_time=LONG):
        assert event.status == "Started"


@pytest.mark.parametrize("move", [play, play_until, until_over, until_started, during])
def test_a_client_that_prepares_in_the_background_is_not_overtaken(
    service: Service, web: Group, move: Callable[[Service, Event], None]
) -> None:
    with Client(service, "web_0", act=(act := Background())):
        web[0].wait_for_poll()
        event = web[0].restart()
        move(service, event)
        assert act.prepared.is_set()
        assert event.approved_by == "web_0"
        assert event.started_at is not None
        assert event.started_at < event.not_before
        assert not service.verdict().complaints


@pytest.mark.parametrize(("in_background", "waits"), [(False, False), (False, True), (True, False)])
def test_a_client_that_prepares_shortly_before_the_event_sees_that_moment(
    service: Service, web: Group, patience: Patience, in_background: bool, waits: bool
) -> None:
    act = ShortlyBeforeInBackground(patience) if in_background else ShortlyBefore()
    with Client(service, "web_0", act=act, waits=waits):
        web[0].wait_for_poll()
        event = web[0].restart()
        event.until_started()
        assert event.approved_by == "web_0"
        assert event.started_at is not None
        assert event.started_at < event.not_before
        assert not service.verdict().complaints


@pytest.mark.parametrize("minutes", [10, 5, 2])
@pytest.mark.parametrize("steps", [["1h"], ["10m", "3m", "1h"]])
def test_the_clock_stops_at_round_moments_before_an_event(
    service: Service, web: Group, minutes: int, steps: list[str]
) -> None:
    with Client(service, "web_0", act=ShortlyBefore(minutes)):
        web[0].wait_for_poll()
        event = web[0].restart()
        for step in steps:
            service.clock.play(step)
        assert started_before(event) == timedelta(minutes=minutes)
        assert not service.verdict().complaints


def by_itself(service: Service, event: Event) -> None:
    service.clock.resume(speed=3_600)
    until(lambda: event.over, "it is over")


def one_play(service: Service, _: Event) -> None:
    service.clock.play("1h")


@pytest.mark.parametrize("minutes", [3, 7])
@pytest.mark.parametrize("move", [one_play, by_itself])
def test_the_clock_stops_at_the_moments_it_is_given(
    move: Callable[[Service, Event], None], minutes: int
) -> None:
    with Service(stop_before=["3m", timedelta(minutes=7)]) as service:
        web = service.scale_set("web", 1)
        with Client(service, "web_0", act=ShortlyBefore(minutes)):
            web[0].wait_for_poll()
            event = web[0].restart()
            move(service, event)
            assert started_before(event) == timedelta(minutes=minutes)
            assert not service.verdict().complaints


def test_a_client_that_prepares_in_the_background_gets_time_at_a_moment_of_its_own(
    patience: Patience,
) -> None:
    with Service(stop_before="7m") as service:
        web = service.scale_set("web", 1)
        act = ShortlyBeforeInBackground(patience, 7)
        with Client(service, "web_0", act=act):
            web[0].wait_for_poll()
            event = web[0].restart()
            service.clock.play("1h")
            assert started_before(event) == timedelta(minutes=7)


def test_a_callable_client_sees_such_moments_in_a_scenario() -> None:
    def played(service: Service, minutes: int) -> timedelta:
        def poll() -> None:
            for event in service.document("web_0")["Events"]:
                if event["EventStatus"] == "Scheduled":
                    left = parsedate_to_datetime(event["NotBefore"]) - service.clock.now
                    if left <= timedelta(minutes=minutes):
                        service.approve("web_0", event["EventId"])

        result = service.play_scenario("user-reboot", client=poll)
        [course] = [course for course in result.verdict.courses if course.machine == "web_0"]
        assert course.margin is not None
        return timedelta(seconds=course.margin)

    with Service() as service:
        assert played(service, 2) == timedelta(minutes=2)
    with Service(stop_before=240) as service:
        assert played(service, 4) == timedelta(minutes=4)


def test_a_client_without_time_to_react_is_noted_with_its_time(
    service: Service, web: Group
) -> None:
    with Client(service, "web_0"):
        web[0].wait_for_poll()
        web[0].restart()
        service.clock.play("1h", reaction_time=0)
        [note] = service.verdict().complaints
    assert note.rule == "no-reaction"
    assert "of real time" in note.message


def test_a_late_approval_has_no_effect_and_is_noted(service: Service, web: Group) -> None:
    """Nobody has approved the event, and the machine has not seen yet that it has started."""
    guest(service, "web_0")
    event = web[0].restart()
    guest(service, "web_0")
    service.clock.advance("15m")
    guest(service, "web_0", method="POST", body=write_approval([event.id]))
    rules = [complaint.rule for complaint in service.verdict().complaints]
    assert rules == ["late-approval"]


def test_each_event_is_given_its_reaction_time_once(
    service: Service, web: Group, patience: Patience
) -> None:
    with Client(service, "web_0"):
        web[0].wait_for_poll()
        event = web[0].schedule("Reboot", notice="1h")
        waited = []
        for _ in range(20):
            start = patience.monotonic()
            service.clock.play("1m", reaction_time=0.5)
            waited.append(patience.monotonic() - start)
        assert event.status == "Scheduled"
    assert waited[0] >= 0.4
    assert sum(waited[1:]) < 0.5 * 19


def test_reactions_of_the_test_and_of_unaffected_machines_are_not_waited_for(
    service: Service, web: Group, patience: Patience
) -> None:
    with Client(service, "web_1"):
        web[1].wait_for_poll()
        service.document("web_0")
        event = web[0].restart()
        service.document("web_0")
        start = patience.monotonic()
        event.until_over(reaction_time=LONG)
        assert patience.monotonic() < start + LONG / 2


def test_a_client_that_reported_ready_is_not_waited_for(
    service: Service, web: Group, patience: Patience
) -> None:
    def report(client: Client, document: Any) -> None:
        for event in document["Events"]:
            if event["EventStatus"] == "Scheduled":
                web[0].report_ready(event["EventId"])

    with Client(service, "web_0", act=report):
        web[0].wait_for_poll()
        event = web[0].restart()
        start = patience.monotonic()
        event.until_started(reaction_time=LONG)
        assert patience.monotonic() < start + LONG / 2
        assert event.ready == ("web_0",)


@pytest.mark.parametrize("approve", [False, True])
def test_a_client_may_approve_while_the_test_starts_the_event(
    service: Service, web: Group, approve: bool
) -> None:
    """A client that nobody waits for may approve at any time; nothing is refused because of it."""
    for _ in range(20):
        event = web[0].restart()
        with beside(lambda event=event: event.approve("web_0") or True):  # type: ignore[misc]
            event.until_started(approve=approve)
            event.until_over()
        assert event.over


def test_a_callable_client_is_called_after_every_change_before_the_clock_moves(
    service: Service, web: Group
) -> None:
    """An approval that nobody has waited for starts the event: the clock does not pass its end."""
    event = web[0].restart()
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            guest(service, "web_0", method="POST", body=write_approval([event.id]))
            return False
        return event.status == "Started"

    assert service.clock.play("1h", until=look)
    assert looks == 2
    assert event.status == "Started"


def test_a_callable_client_that_changes_something_at_every_call_does_not_block(
    service: Service, web: Group
) -> None:
    event = web[0].schedule("Reboot", notice="1h")

    def look() -> bool:
        web[1].freeze().cancel()
        return False

    assert not service.clock.advance("2h", until=look)
    assert event.over


@pytest.mark.parametrize("status", ["Scheduled", "Started"])
def test_a_client_that_dies_is_found_although_its_machine_has_a_callback(
    service: Service, web: Group, status: str
) -> None:
    def act(client: Client, document: Any) -> None:
        for event in document["Events"]:
            if event["EventStatus"] == status:
                client.stop()
            else:
                client.approve(document)

    impacts: list[Impact] = []
    web[0].on_impact(impacts.append)
    with Client(service, "web_0", act=act) as client:
        web[0].wait_for_poll()
        event = web[0].restart()
        client.join()
        service.clock.play("1h", timeout=SHORT)
        assert event.over
        assert [complaint.rule for complaint in service.verdict(timeout=SHORT).wrong] == [
            "stopped-polling"
        ]
    assert [impact.phase for impact in impacts] == ["begins", "ends"]


@pytest.mark.parametrize(("end", "rules"), [(True, ["stopped-polling"]), (False, [])])
def test_a_client_that_dies_of_an_eviction_is_found_unless_it_was_ready(
    service: Service, web: Group, end: bool, rules: list[str]
) -> None:
    def act(client: Client, document: Any) -> None:
        if document["Events"]:
            if not end:
                client.approve(document)
            client.stop()

    with Client(service, "web_0", act=act):
        web[0].wait_for_poll()
        service.clock.play(0)
        event = web[0].evict()
        service.clock.play("1h", timeout=SHORT)
        assert event.over
        assert [complaint.rule for complaint in service.verdict(timeout=SHORT).wrong] == rules


def test_a_client_that_may_be_preparing_for_its_own_event_is_waited_for_longer(
    service: Service, web: Group
) -> None:
    catch_up = service._session.node.catch_up
    assert catch_up is not None
    client = "web_0", GUEST
    guest(service, "web_0")
    event = web[0].evict()
    waited = []
    for _ in range(2):  # before and after it has seen the event
        waited.append(catch_up._patience(client, catch_up._owed[client], POLL_PATIENCE))
        guest(service, "web_0")
    assert waited == [POLL_PATIENCE, PREPARE_FACTOR * POLL_PATIENCE]
    assert event.status == "Scheduled"


def test_a_client_that_polls_seldom_is_waited_for_longer(
    service: Service, web: Group, patience: Patience
) -> None:
    patience.stand_still()
    with Client(service, "web_0", pause=0.2, act=lambda *_: patience.advance(2)) as client:
        client.polls(2)
        web[0].wait_for_poll()
        web[1].freeze()
        service.clock.play("1h", timeout=0.05)
        assert client.statuses == [[], ["Scheduled"], ["Started"], []]
        assert not service.verdict().complaints


def test_a_client_whose_polls_fail_is_waited_for_longer_and_not_accused(
    service: Service, web: Group
) -> None:
    with Client(service, "web_0") as client:
        web[0].wait_for_poll()
        fault = service.faults.add("error", machine="web_0")
        web[1].freeze()
        beside_play = threading.Thread(target=lambda: service.clock.play("1h", timeout=1))
        beside_play.start()
        until(lambda: fault.consumed > 3)
        service.faults.clear()
        beside_play.join()
        assert client.statuses == [[], ["Scheduled"], ["Started"], []]
        assert not service.verdict().wrong


def test_a_client_whose_polls_fail_for_a_while_sees_the_event_when_that_is_over(
    service: Service, web: Group
) -> None:
    with Client(service, "web_0", act=Client.approve):
        service.faults.add("gone", machine="web_0", lasts="70s")
        event = web[0].restart()
        began = service.clock.now
        service.clock.play("1h", timeout=SHORT)
        assert event.started_at == began + timedelta(seconds=70)
        assert event.approved_by == "web_0"
        assert not service.verdict().wrong


def test_a_client_that_was_given_up_is_waited_for_again_without_the_fault(
    service: Service, web: Group
) -> None:
    with Client(service, "web_0", act=Client.approve):
        web[0].wait_for_poll()
        with service.faults.during("error", machine="web_0"):
            event = web[0].restart()
            service.clock.play("1m", timeout=SHORT)
        service.clock.play("1h")
        assert event.approved_by == "web_0"
        assert not service.verdict().wrong


@pytest.mark.parametrize(("client_timeout", "notes"), [(None, ["no-timeout"]), (0.1, [])])
def test_a_client_whose_request_hangs_is_waited_for_again_when_that_has_ended(
    service: Service, web: Group, client_timeout: float | None, notes: list[str]
) -> None:
    def poll(timeout: float | None) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            request = Request(target, headers={"Metadata": "true"})
            with urlopen(request, timeout=timeout) as answer:
                answer.read()

    def run() -> None:
        poll(PATIENCE)
        assert faulty.wait(PATIENCE)
        poll(client_timeout)
        while not stop.is_set():
            poll(PATIENCE)
            stop.wait(0.005)

    target = f"{web[0].url}/metadata/scheduledevents?api-version=2020-07-01"
    faulty, stop = threading.Event(), threading.Event()
    with beside(run):
        web[0].wait_for_poll()
        fault = service.faults.add("stalled", machine="web_0", times=1)
        event = web[1].freeze()
        faulty.set()
        if client_timeout is None:  # it hangs for good
            until(lambda: fault.consumed == 1)
        service.clock.play("1h", timeout=SHORT if client_timeout is None else PATIENCE)
        verdict = service.verdict()
        stop.set()
    assert verdict.course("web_0", event).statuses == ("Scheduled", "Started")
    assert [complaint.rule for complaint in verdict.complaints] == notes


def test_a_client_that_only_gets_plain_text_polls_all_the_same(
    service: Service, web: Group
) -> None:
    with Client(service, "web_0", act=Client.approve):
        web[0].wait_for_poll()
        service.faults.add("plain", machine="web_0")
        event = web[0].restart()
        event.until_over(timeout=SHORT)
        assert event.approved_by == "web_0"
        assert not service.verdict(timeout=SHORT).wrong


def test_the_end_of_an_event_that_a_client_has_started_early_is_not_passed(
    service: Service, web: Group
) -> None:
    with Client(service, "web_0", act=Client.approve):
        web[0].wait_for_poll()
        event = web[0].schedule("Reboot", notice="1h")
        event.until_over()
        assert event.ended_at == service.clock.now
        assert event.ended_at < event.not_before


def test_an_event_that_is_over_cannot_start(service: Service, web: Group) -> None:
    event = web[0].restart().cancel()
    with pytest.raises(RefusedError, match="cannot start"):
        event.until_started()
