"""What explain advises works if it is typed, for every kind of hold; and it says who does not
listen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from forewarn.core import Event, EventType, Policy, Refused, Status, World
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.fleet import OverWhen
from forewarn.core.time import HOUR, MINUTE
from forewarn.core.windows.may_postpone import parse_may_postpone
from forewarn.core.windows.model import Blackout, MaintenanceConfiguration, Span
from forewarn.core.world import UntrustedClock
from forewarn.drivers.port import (
    Again,
    Done,
    Driver,
    Failed,
    NotYet,
    Observed,
    Ok,
    Performed,
    Task,
)
from forewarn.service.platform.configurations import Configurations
from forewarn.service.platform.explain import Advice, AdviceKind, EventExplanation, Verb
from forewarn.service.platform.hosts import LIVE_MIGRATION
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import StoreFailed
from forewarn.testing import Service
from helpers.reachable_hosts import cut_off, join

FLEET = """
hosts: [h1, h2]
groups:
  - name: web
    kind: scale-set
    policy: {terminate_notice: 10m}
    machines:
      - {name: web_0, update_domain: 0, host: h1}
      - {name: web_1, update_domain: 1, host: h2}
      - {name: web_2, update_domain: 2, host: h2}
  - name: db
    kind: standalone
    machines: [{name: db-0, host: h1}]
"""


class Scripted(Driver):
    """A driver that is not done until it is told so, or that fails."""

    repeatable = False

    def __init__(self) -> None:
        self.answer: Performed | None = None
        self.hangs = False

    async def check(self, task: Task) -> Ok:
        return Ok()

    async def observe(self, task: Task) -> Observed:
        return NotYet()

    async def perform(self, task: Task) -> Performed:
        if self.hangs:
            await asyncio.Event().wait()
        return self.answer or Again(at=task.now + MINUTE)


class Fragile(MemoryStore):
    """A store whose disk can be full."""

    full = False

    async def _persist(self, *given: Any) -> None:
        if self.full:
            raise StoreFailed("no space left")
        await super()._persist(*given)


@pytest.fixture
def driver() -> Scripted:
    return Scripted()


@contextmanager
def polled(driver: Scripted) -> Iterator[Service]:
    with Service(FLEET, store=Fragile(Disk()), driver=driver) as made:
        for name in ("web_0", "web_1", "web_2", "db-0"):
            made.get(name)
        yield made


@pytest.fixture
def service(driver: Scripted) -> Iterator[Service]:
    with polled(driver) as made:
        yield made


def run(service: Service, work: Any) -> Any:
    result = service._session.run(work)
    assert not isinstance(result, Refused), result
    service._session.settle()
    return result


def explain(service: Service, id: str) -> EventExplanation:
    explanation: EventExplanation = run(service, service._session.node.platform.explain(id))
    return explanation


def kinds(explanation: EventExplanation) -> list[HoldKind]:
    return [hold.kind for hold in explanation.holds]


def type_advice(service: Service, advice: Advice) -> None:
    """Do what was advised; it must not be refused."""
    platform = service._session.node.platform
    match advice.kind:
        case AdviceKind.APPROVE:
            run(service, platform.approve(advice.event, "operator"))
        case AdviceKind.RETRY:
            run(service, platform.retry(advice.event, "operator"))
        case AdviceKind.FINISH:
            run(service, platform.finish(advice.event, "operator", "it happened"))
        case AdviceKind.ACCEPT_CLOCK:
            raise AssertionError("a virtual clock cannot be accepted")


# Situations: each makes an event wait, and returns its id.


def notice(service: Service, _driver: Scripted) -> str:
    return service.schedule("Reboot", "web_0").id


def grace(service: Service, _driver: Scripted) -> str:
    event = service.schedule("Reboot", "web_0")
    service.clock.interrupt("1h")
    return event.id


def restored(service: Service, _driver: Scripted) -> str:
    event = service.schedule("Reboot", "web_0")
    service.clock.interrupt("1h")
    node = service._session.node
    node.writer.restored(node.writer.now().at)
    return event.id


def busy_machine(service: Service, _driver: Scripted) -> str:
    service.approve("web_0", service.schedule("Reboot", "web_0"))
    return service.schedule("Freeze", "web_0").id


def busy_domain(service: Service, _driver: Scripted) -> str:
    service.approve("web_0", service.schedule("Reboot", "web_0"))
    second = service.schedule("Freeze", "web_1")
    service.approve("web_1", second)
    return second.id


def coupled(service: Service, _driver: Scripted) -> str:
    service.schedule("Terminate", "web_0", notice="10m")
    second = service.schedule("Terminate", "web_1", notice="12m")
    service.approve("web_1", second)
    return second.id


def window(service: Service, _driver: Scripted) -> str:
    node = service._session.node
    now = node.writer.now().at
    outcomes = run(
        service,
        node.hosts.maintain("h2", LIVE_MIGRATION, "x", span=Span(now + HOUR)),
    )
    return str(outcomes.events[0].id)


def blacked_out(service: Service, _driver: Scripted) -> str:
    event = service.schedule("Reboot", "web_0")
    now = service._session.node.writer.now().at
    blackout = Blackout(begins=now, ends=now + HOUR, text="inventory")
    configuration = MaintenanceConfiguration(name="shop", blackouts=(blackout,))
    node = service._session.node
    run(service, Configurations(node.store, node.writer).set(configuration, "operator"))
    return event.id


def halted(service: Service, _driver: Scripted) -> str:
    event = service.schedule("Reboot", "web_0")
    run(service, service._session.node.halts.place(by="operator", note="stop"))
    return event.id


def out_of_reach(service: Service, _driver: Scripted) -> str:
    event = service.schedule("Reboot", "web_0")
    cut_off(service, "h1")
    return event.id


def back_in_reach(service: Service, driver: Scripted) -> str:
    id = out_of_reach(service, driver)
    service.clock.advance("1h")
    join(service, "h1")
    return id


def together_out_of_reach(service: Service, driver: Scripted) -> str:
    cut_off(service, "h1")
    return together(service, driver)


def together(service: Service, _driver: Scripted) -> str:
    outcomes = run(
        service, service._session.node.hosts.maintain("h1", EventType.REBOOT, "operator")
    )
    events = {event.group: event for event in outcomes.events}
    assert set(events) == {"web", "db"}
    return str(events["web"].id)


def together_half_approved(service: Service, driver: Scripted) -> str:
    id = together(service, driver)
    service.approve("web_1", id)
    return id


def uninformed(service: Service, driver: Scripted) -> str:
    id = together(service, driver)
    run(service, service._session.node.platform.record_move("web_2", "h1", "operator"))
    for event in service.events:
        run(service, service._session.node.platform.approve(event.id, "operator"))
    return id


def under_way(service: Service, _driver: Scripted) -> str:
    event = service.schedule("Reboot", "web_0")
    service.approve("web_0", event)
    return event.id


def not_back(service: Service, driver: Scripted) -> str:
    driver.answer = Done()
    policy = Policy(over_when=OverWhen.HEARD)
    run(service, service._session.node.platform.set_policy("web", lambda _: policy, "operator"))
    return under_way(service, driver)


def failing(service: Service, driver: Scripted) -> str:
    driver.answer = Failed("the hypervisor says no")
    return under_way(service, driver)


def carried_out_with_its_host(service: Service, driver: Scripted) -> str:
    together(service, driver)
    node = service._session.node
    active = [event for name in ("web", "db") for event in node.store.groups[name].events]
    for event in active:
        run(service, node.platform.approve(event.id, "operator"))
    after = [event for name in ("web", "db") for event in node.store.groups[name].events]
    return next(event.id for event in after if event.attempt is None)


Situation = Callable[[Service, Scripted], str]
HELD: dict[Situation, tuple[set[HoldKind], list[AdviceKind]]] = {
    notice: ({HoldKind.NOTICE}, [AdviceKind.APPROVE]),
    grace: ({HoldKind.GRACE}, [AdviceKind.APPROVE]),
    restored: ({HoldKind.RESTORED, HoldKind.NOTICE}, []),
    busy_machine: ({HoldKind.NOTICE, HoldKind.MACHINE}, []),
    busy_domain: ({HoldKind.DOMAIN}, []),
    coupled: ({HoldKind.COUPLING}, [AdviceKind.APPROVE]),
    window: ({HoldKind.WINDOW, HoldKind.NOTICE}, []),
    blacked_out: ({HoldKind.BLACKOUT, HoldKind.NOTICE}, []),
    halted: ({HoldKind.HALT, HoldKind.NOTICE}, []),
    out_of_reach: ({HoldKind.REACH, HoldKind.NOTICE}, []),
    back_in_reach: ({HoldKind.REACH}, [AdviceKind.APPROVE]),
    together_out_of_reach: ({HoldKind.REACH, HoldKind.JOINT}, []),
    together: ({HoldKind.JOINT}, [AdviceKind.APPROVE] * 2),
    together_half_approved: ({HoldKind.JOINT}, [AdviceKind.APPROVE]),
    uninformed: ({HoldKind.PLACEMENT}, []),
    under_way: ({HoldKind.DRIVER}, [AdviceKind.RETRY, AdviceKind.FINISH]),
    not_back: ({HoldKind.BACK}, [AdviceKind.FINISH]),
    failing: ({HoldKind.DRIVER}, [AdviceKind.RETRY, AdviceKind.FINISH]),
    carried_out_with_its_host: ({HoldKind.DRIVER}, [AdviceKind.RETRY, AdviceKind.FINISH]),
}
# Those that are tested on their own below.
ELSEWHERE = {HoldKind.CLOCK, HoldKind.STATE}


def test_every_kind_of_hold_is_tried() -> None:
    assert set().union(*(found for found, _ in HELD.values())) | ELSEWHERE == set(HoldKind)


@pytest.mark.parametrize("situation", HELD, ids=lambda situation: situation.__name__)
def test_advice_works_and_nothing_that_would_fail_is_advised(
    service: Service, driver: Scripted, situation: Situation
) -> None:
    id = situation(service, driver)
    explanation = explain(service, id)
    expected, advised = HELD[situation]
    assert set(kinds(explanation)) <= expected
    assert kinds(explanation)
    assert [advice.kind for advice in explanation.advice] == advised
    started = explanation.event.status is Status.STARTED
    for advice in explanation.advice:
        type_advice(service, advice)
    after = explain(service, id).event
    if started:
        assert after.status is Status.FINISHED
    elif advised:
        assert after.status is not Status.SCHEDULED
    else:
        run(service, service._session.node.platform.approve(id, "operator"))
        assert explain(service, id).event.status is Status.SCHEDULED


def carry_out(service: Service, verb: Verb, event: Event) -> Any:
    """Return what a verb is answered with: the event, or a refusal."""
    platform, id, by = service._session.node.platform, event.id, "operator"
    work: dict[Verb, Callable[[], Any]] = {
        Verb.APPROVE: lambda: platform.approve(id, by),
        Verb.POSTPONE: lambda: platform.postpone(id, by, duration=MINUTE),
        Verb.READY: lambda: platform.report_ready(id, by, event.resources[0], ready=True, note=""),
        Verb.CANCEL: lambda: platform.cancel(id, by),
        Verb.RETRY: lambda: platform.retry(id, by),
        Verb.FINISH: lambda: platform.finish(id, by, "it happened"),
        Verb.ABANDON: lambda: platform.abandon(id, by, "it did not happen"),
    }
    return service._session.run(work[verb]())


def postponable(policy: Policy) -> Policy:
    return msgspec.structs.replace(policy, may_postpone=parse_may_postpone("4h, twice"))


@pytest.mark.parametrize("situation", HELD, ids=lambda situation: situation.__name__)
def test_a_verb_is_named_if_the_state_of_the_event_does_not_refuse_it(
    driver: Scripted, situation: Situation
) -> None:
    for verb in Verb:
        with polled(driver) as service:
            run(service, service._session.node.platform.set_policy("web", postponable, "operator"))
            id = situation(service, driver)
            explanation = explain(service, id)
            outcome = carry_out(service, verb, explanation.event)
            possible = not isinstance(outcome, Refused) and "already" not in str(outcome.notes)
            assert possible == (verb in explanation.verbs), verb


def test_advice_on_a_host_ignores_the_maintenance_of_other_hosts(
    driver: Scripted,
) -> None:
    """Though a group is on both, and the other host is of groups that this one is not of."""
    fleet = """
hosts: [h1, h2]
groups:
  - name: web
    kind: scale-set
    machines: [{name: web_0, host: h1}, {name: web_1, host: h2}]
  - {name: db, kind: standalone, machines: [{name: db-0, host: h2}]}
"""
    with Service(fleet, driver=driver) as service:
        hosts, reboot = service._session.node.hosts, EventType.REBOOT
        for name in ("web_0", "db-0"):
            service.get(name)
        first = run(service, hosts.maintain("h1", reboot, "operator")).events[0]
        second = run(service, hosts.maintain("h2", reboot, "operator")).events
        service.approve("web_0", next(event.id for event in second if event.group == "web"))
        advice = explain(service, first.id).advice
        assert [item.event for item in advice] == [first.id]
        type_advice(service, advice[0])
        assert explain(service, first.id).event.status is Status.STARTED


def test_a_started_event_on_an_unreachable_host_is_explained_by_the_host(
    service: Service, driver: Scripted
) -> None:
    cut_off(service, "h1")
    id = service["web_0"].fail().id
    explanation = explain(service, id)
    assert explanation.event.status is Status.STARTED
    assert kinds(explanation) == [HoldKind.REACH]
    assert "driver has not" in explanation.message
    assert explanation.advice == ()
    join(service, "h1")
    assert HoldKind.REACH not in kinds(explain(service, id))


def test_an_attempt_that_is_under_way_cannot_be_retried(service: Service, driver: Scripted) -> None:
    driver.hangs = True
    event = service.schedule("Reboot", "web_0")
    node = service._session.node
    service._session.run(node.platform.approve(event.id, "operator"))
    explanation = service._session.run(node.platform.explain(event.id))
    assert not isinstance(explanation, Refused)
    assert [advice.kind for advice in explanation.advice] == [AdviceKind.FINISH]
    service._session.run(node.platform.finish(event.id, "operator", "it happened"))


def test_nothing_is_advised_while_the_state_cannot_be_written(service: Service) -> None:
    waiting = service.schedule("Reboot", "web_0")
    node, store = service._session.node, service._session.node.store
    assert isinstance(store, Fragile)
    store.full = True
    with pytest.raises(StoreFailed):
        service._session.run(node.platform.approve(waiting.id, "operator"))
    explanation = explain(service, waiting.id)
    assert explanation.advice == ()
    first, *others = explanation.holds
    assert first.kind is HoldKind.STATE
    assert [hold.kind for hold in others] == [HoldKind.NOTICE]
    assert all("nobody before the state" in hold.unblocked_by for hold in others)
    store.full = False
    run(service, node.platform.approve(waiting.id, "operator"))
    assert explain(service, waiting.id).event.status is Status.STARTED


@pytest.mark.parametrize("situation", [notice, busy_domain, together, under_way, failing])
def test_no_approval_and_no_retry_is_advised_while_the_clock_is_not_trusted(
    service: Service, driver: Scripted, situation: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = situation(service, driver)
    clock = service._session.node.clock
    original = clock.now

    def untrusted(rules: Any) -> World:
        now = original(rules)
        return msgspec.structs.replace(now, untrusted=UntrustedClock(now.at - HOUR, now.at))

    monkeypatch.setattr(clock, "now", untrusted)
    explanation = service._session.run(service._session.node.platform.explain(id))
    assert not isinstance(explanation, Refused)
    assert kinds(explanation)[0] is HoldKind.CLOCK
    assert all("nobody before the clock" in hold.unblocked_by for hold in explanation.holds[1:])
    advised = {advice.kind for advice in explanation.advice}
    assert AdviceKind.ACCEPT_CLOCK in advised
    assert advised <= {AdviceKind.ACCEPT_CLOCK, AdviceKind.FINISH}


def test_machines_that_have_not_polled_recently_are_named(service: Service) -> None:
    event = service.schedule("Reboot", "web_0", notice="3h")
    assert explain(service, event.id).not_listening == {}
    service.clock.advance("2h")
    service.get("web_1")
    explanation = explain(service, event.id)
    [(machine, last)] = explanation.not_listening.items()
    assert (machine, explanation.unheard) == ("web_0", False)
    assert last == service._session.node.writer.now().at - 2 * HOUR
    assert "group 'web'" in explanation.holds[0].unblocked_by
    never = service.schedule("Reboot", "web_2")
    assert explain(service, never.id).not_listening == {
        "web_2": service._session.node.writer.now().at - 2 * HOUR
    }


def test_only_an_operator_can_approve_for_a_group_that_does_not_poll() -> None:
    with Service(FLEET) as service:
        event = service.schedule("Reboot", "web_0")
        explanation = explain(service, event.id)
        assert explanation.not_listening == {"web_0": None}
        assert explanation.unheard
        [hold] = explanation.holds
        assert hold.unblocked_by.startswith("an operator")
        assert "no machine of group 'web'" in hold.unblocked_by
        type_advice(service, explanation.advice[0])
        assert explain(service, event.id).event.status is not Status.SCHEDULED
        over = service.schedule("Reboot", "web_0", notice="15m")
        service.clock.advance("1h")
        assert explain(service, over.id).not_listening == {}


def test_the_maintenance_of_a_host_names_machines_that_will_not_be_warned(
    service: Service,
) -> None:
    service.clock.advance("2h")
    service.get("web_0")
    outcomes = run(
        service, service._session.node.hosts.maintain("h1", EventType.REBOOT, "operator")
    )
    (note,) = (note for note in outcomes.notes if note.startswith("1 of 2 machines"))
    assert note.endswith(": db-0")
