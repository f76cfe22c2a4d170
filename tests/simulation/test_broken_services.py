"""Services with one thing broken each: the judge must catch every one of them by its traffic."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import pytest

from forewarn.core import (
    Event,
    EventType,
    Group,
    GroupView,
    Refused,
    Source,
    Status,
    World,
    changes,
    group,
)
from forewarn.core.deciding import announce, due, finish, holds, joint, start
from forewarn.core.lifecycle import SHOWN, Move, move
from forewarn.core.time import DAY, HOUR, MINUTE
from forewarn.drivers.port import Later, NotYet, Observed, Task
from forewarn.drivers.simulated import ImpactJournal
from forewarn.judge import judge
from forewarn.metadata.endpoint import app, documents, to_wire
from forewarn.metadata.endpoint.reply import Reply
from forewarn.metadata.upstream import GroupNews, LocalUpstream, NotDurable
from forewarn.service.engine.executor import Executor
from forewarn.store.port import Commit, PollSightings
from forewarn.wire import document
from forewarn.wire.versions import Version
from simulation import world
from simulation.own_recordings import OwnScript
from simulation.script import NAMES, Script
from simulation.world import Kill, LossyDriver, MortalStore, Simulation

Break: TypeAlias = Callable[[pytest.MonkeyPatch], None]
replace = msgspec.structs.replace


def starts_without_waiting(patch: pytest.MonkeyPatch) -> None:
    for module in (holds, start):
        patch.setattr(module, "notice_over_by", lambda now: now.at + 365 * DAY)


def forgets_approvals(patch: pytest.MonkeyPatch) -> None:
    async def acknowledge(*_: object) -> bool:
        return True

    patch.setattr(LocalUpstream, "approve", acknowledge)


def fails_and_approves_nevertheless(patch: pytest.MonkeyPatch) -> None:
    honest = LocalUpstream.approve

    async def fail(self: LocalUpstream, machine: str, group: str, ids: Sequence[str]) -> bool:
        await honest(self, machine, group, ids)
        raise NotDurable("the disk is full")

    patch.setattr(LocalUpstream, "approve", fail)


def acknowledges_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """What is committed reaches the disk only with the next saving of what is lossy."""
    behind: list[tuple[Sequence[Commit], dict[str, Group]]] = []
    persist, save, open_ = MortalStore._persist, MortalStore.save, MortalStore.open

    async def later(self: Any, commits: Any, before: Any, after: Any) -> None:
        if self._kill.at_commit is not None and commits[-1].seq >= self._kill.at_commit:
            self._kill.at_commit = None
            self.died.set()
            await asyncio.Event().wait()
        behind.append((commits, dict(after)))

    async def now(self: Any, sightings: PollSightings) -> None:
        for commits, after in behind:
            await persist(self, commits, {}, after)
        behind.clear()
        await save(self, sightings)

    async def fresh(self: Any) -> None:
        behind.clear()
        await open_(self)

    patch.setattr(MortalStore, "_persist", later)
    patch.setattr(MortalStore, "save", now)
    patch.setattr(MortalStore, "open", fresh)


def carries_out_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ImpactJournal, "impact", lambda _self, _event: None)


def never_raises_the_incarnation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(changes, "SHOWN", frozenset())


def raises_the_incarnation_with_an_approval_that_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(changes, "SHOWN", SHOWN | {Move.APPROVE})


def starts_over_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    open_ = MortalStore.open

    async def reopened(self: Any) -> None:
        await open_(self)
        self._groups = {
            name: replace(group, incarnation=min(group.incarnation, 1))
            for name, group in self._groups.items()
        }

    patch.setattr(MortalStore, "open", reopened)


def _patch_view(patch: pytest.MonkeyPatch, change: Callable[[GroupView], GroupView]) -> None:
    honest = to_wire.document
    patch.setattr(to_wire, "document", lambda view, version: honest(change(view), version))


def changes_the_id_when_it_starts(patch: pytest.MonkeyPatch) -> None:
    def another_id(id: str) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, id)).upper()

    def other(view: GroupView) -> GroupView:
        return replace(
            view,
            events=tuple(
                replace(e, id=another_id(e.id) if e.status is Status.STARTED else e.id)
                for e in view.events
            ),
        )

    _patch_view(patch, other)


def reverses_the_order_with_every_change(patch: pytest.MonkeyPatch) -> None:
    def reversed_(view: GroupView) -> GroupView:
        return replace(view, events=view.events[:: 1 if view.incarnation % 2 else -1])

    _patch_view(patch, reversed_)


def moves_the_time(patch: pytest.MonkeyPatch) -> None:
    def later(view: GroupView) -> GroupView:
        shift = view.incarnation * 1_000_000
        return replace(
            view,
            events=tuple(
                replace(e, not_before=None if e.not_before is None else e.not_before + shift)
                for e in view.events
            ),
        )

    _patch_view(patch, later)


def shows_everybody_the_same_document(patch: pytest.MonkeyPatch) -> None:
    update, render = documents.GroupDocuments.update, documents.GroupDocument.render
    web: list[documents.GroupDocument] = []

    def remembered(self: documents.GroupDocuments, news: GroupNews) -> documents.GroupDocument:
        document = update(self, news)
        web[:] = [document] if news.view.name == "web" else web
        return document

    def same(self: documents.GroupDocument, version: Version) -> documents.RenderedDocument:
        return render(web[0] if web and web[0].enabled else self, version)

    patch.setattr(documents.GroupDocuments, "update", remembered)
    patch.setattr(documents.GroupDocument, "render", same)


def shows_new_fields_in_old_versions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(document, "shown", lambda document, _version: document)


def disturbs_all_domains_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Event, "waits_for_domain", property(lambda _self: False))


def starts_a_second_event_on_a_busy_machine(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Event, "waits", property(lambda _self: False))


def starts_all_domains_in_one_commit(patch: pytest.MonkeyPatch) -> None:
    """What starts together does not look at one another, only at what has started before."""
    add = holds.Occupancy.add

    def blind(self: holds.Occupancy, event: Event) -> None:
        if event.started_at is None or event.started_at < NOW[-1]:
            add(self, event)

    _patch_now(patch)
    patch.setattr(holds.Occupancy, "add", blind)


def starts_two_events_of_a_machine_in_one_commit(patch: pytest.MonkeyPatch) -> None:
    """The same, but that update domains are kept apart."""
    blocks = holds.Occupancy.blocks

    def by_domain(self: holds.Occupancy, event: Event) -> bool:
        busy = self.on_machines(event.resources).values()
        if busy and all((other.started_at or 0) >= NOW[-1] for other in busy):
            return event.waits_for_domain and bool(self.in_other_domains(event.domain))
        return blocks(self, event)

    _patch_now(patch)
    patch.setattr(holds.Occupancy, "blocks", by_domain)


NOW: list[int] = [0]  # the instant of the decision that is being made


def _patch_now(patch: pytest.MonkeyPatch) -> None:
    honest = start._Settlement.__init__

    def noted(self: Any, group: Group, now: World) -> None:
        NOW[:] = [now.at]
        honest(self, group, now)

    patch.setattr(start._Settlement, "__init__", noted)


def announces_too_late(patch: pytest.MonkeyPatch) -> None:
    """With a minute less of notice than is promised, and nobody asked for that."""
    honest = announce._not_before

    def late(command: Any, now: World) -> Any:
        when = honest(command, now)
        return when if isinstance(when, Refused) else max(when - MINUTE, now.at)

    patch.setattr(announce, "_not_before", late)


def starts_freezes_out_of_nothing(patch: pytest.MonkeyPatch) -> None:
    honest = group.view

    def shown(found: Group) -> GroupView:
        view = honest(found)
        return replace(
            view,
            events=tuple(
                e
                for e in view.events
                if e.type is not EventType.FREEZE or e.status is not Status.SCHEDULED
            ),
        )

    patch.setattr("forewarn.metadata.upstream.view", shown)


def loses_approved_events(patch: pytest.MonkeyPatch) -> None:
    """What is approved is gone when it should start."""
    honest = start.started

    def lost(state: Group, event: Event, now: World) -> Event:
        if event.approved is None:
            return honest(state, event, now)
        return move(event, Move.WITHDRAW, ended_at=now.at)

    patch.setattr(start, "started", lost)


def begins_at_another_number(patch: pytest.MonkeyPatch) -> None:
    honest = group.view

    def shifted(found: Group) -> GroupView:
        view = honest(found)
        return replace(view, incarnation=view.incarnation + 1)

    patch.setattr("forewarn.metadata.upstream.view", shifted)


def shows_users_events_as_freezes(patch: pytest.MonkeyPatch) -> None:
    def frozen(view: GroupView) -> GroupView:
        return replace(view, events=tuple(replace(e, source=Source.USER) for e in view.events))

    _patch_view(patch, frozen)


def answers_approvals_with_a_body(patch: pytest.MonkeyPatch) -> None:
    honest = app.MetadataApp._approval

    async def talkative(self: Any, *rest: Any) -> Reply:
        reply = await honest(self, *rest)
        return replace(reply, body=b"OK") if reply.status == 200 else reply

    patch.setattr(app.MetadataApp, "_approval", talkative)


def brings_back_what_was_withdrawn(patch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    honest = group.view

    def haunted(found: Group) -> GroupView:
        view = honest(found)
        seen.update({event.id: event for event in view.events})
        lost = [e for id, e in seen.items() if id not in {v.id for v in view.events}]
        if view.incarnation % 5 == 4:
            mine = [e for e in lost if found.machine(e.resources[0])]
            return replace(view, events=(*view.events, *mine[:1]))
        return view

    patch.setattr("forewarn.metadata.upstream.view", haunted)


def starts_what_is_due_as_soon_as_it_is_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "grace_ends", property(lambda _self: None))


def deletes_one_without_the_other(patch: pytest.MonkeyPatch) -> None:
    for module in (start, due):
        patch.setattr(module, "earlier_deletes", lambda *_: ())


def starts_a_host_without_asking_everybody(patch: pytest.MonkeyPatch) -> None:
    def one_is_enough(groups: Any, active: Any, now: Any) -> bool:
        return any(e.approved or e.not_before <= now.at for e in active.values())

    patch.setattr(joint, "agreed", one_is_enough)


def starts_a_hosts_groups_one_by_one(patch: pytest.MonkeyPatch) -> None:
    honest = joint._settled

    def first_only(*arguments: Any) -> dict[str, Any]:
        return dict(list(honest(*arguments).items())[:1])

    patch.setattr(joint, "_settled", first_only)


def starts_what_is_halted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(holds.HaltedMachines, "stop", lambda *_: False)


def starts_outside_of_windows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(holds, "is_open", lambda *_: True)
    patch.setattr(joint, "is_open", lambda *_: True)


def starts_a_host_with_a_machine_that_was_not_warned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(joint, "_uninformed", lambda *_: ())


def takes_what_cannot_be_seen_for_not_done(patch: pytest.MonkeyPatch) -> None:
    observe = LossyDriver.observe

    async def seen(self: LossyDriver, task: Task) -> Observed:
        observed = await observe(self, task)
        return NotYet() if isinstance(observed, Later) else observed

    patch.setattr(LossyDriver, "observe", seen)


def carries_on_after_a_restart_without_looking(patch: pytest.MonkeyPatch) -> None:
    honest = Executor._start

    def start(self: Executor, event: Event, commit: int | None = None, **how: Any) -> None:
        honest(self, event, commit or self._store.seq, **how)

    patch.setattr(Executor, "_start", start)


def waits_for_machines(patch: pytest.MonkeyPatch) -> None:
    """As all groups do by default, but not in simulations; for an hour, since time passes in large
    steps here."""
    groups = {
        name: replace(define, policy=replace(define.policy, back_within=HOUR))
        for name, define in world.FLEET.groups.items()
    }
    patch.setattr(Simulation, "fleet", replace(world.FLEET, groups=groups))
    patch.setattr(world, "RULES", replace(world.RULES, until_heard=True))


def ends_events_before_their_machines_are_back(patch: pytest.MonkeyPatch) -> None:
    waits_for_machines(patch)
    patch.setattr(finish, "waiting", lambda *_: None)


BROKEN: list[tuple[Break, set[str]]] = [
    (starts_without_waiting, {"early-start", "impact-early"}),
    (forgets_approvals, {"lost-approval"}),
    (fails_and_approves_nevertheless, {"early-start", "impact-early"}),
    (acknowledges_before_it_is_durable, {"came-back", "backwards", "incarnation-down"}),
    (carries_out_twice, {"impact-twice"}),
    (takes_what_cannot_be_seen_for_not_done, {"impact-twice"}),
    (carries_on_after_a_restart_without_looking, {"impact-twice"}),
    (never_raises_the_incarnation, {"incarnation-same"}),
    (raises_the_incarnation_with_an_approval_that_waits, {"incarnation-idle"}),
    (starts_over_after_a_restart, {"incarnation-down", "incarnation-same"}),
    (changes_the_id_when_it_starts, {"changed-id"}),
    (reverses_the_order_with_every_change, {"events-order"}),
    (moves_the_time, {"changed-facts"}),
    (shows_everybody_the_same_document, {"leak-event", "leak-resource"}),
    (shows_new_fields_in_old_versions, {"keys", "hidden-type"}),
    (disturbs_all_domains_at_once, {"domain-overlap"}),
    (starts_a_second_event_on_a_busy_machine, {"machine-overlap"}),
    (starts_all_domains_in_one_commit, {"domain-overlap"}),
    (starts_two_events_of_a_machine_in_one_commit, {"machine-overlap"}),
    (announces_too_late, {"short-notice"}),
    (starts_freezes_out_of_nothing, {"unscheduled-start"}),
    (loses_approved_events, {"vanished"}),
    (shows_users_events_as_freezes, {"event-source"}),
    (answers_approvals_with_a_body, {"approval-body"}),
    (brings_back_what_was_withdrawn, {"came-back"}),
    (starts_what_is_due_as_soon_as_it_is_back, {"grace-start"}),
    (deletes_one_without_the_other, {"coupling"}),
    (starts_a_host_without_asking_everybody, {"joint-approval"}),
    (starts_a_hosts_groups_one_by_one, {"joint-start"}),
    (starts_what_is_halted, {"started-while-halted"}),
    (starts_outside_of_windows, {"started-outside-window"}),
    (starts_a_host_with_a_machine_that_was_not_warned, {"started-uninformed"}),
    (ends_events_before_their_machines_are_back, {"over-before-back"}),
]

# The seed to try first, where it is not the first that catches it: others take much longer.
CAUGHT_BY: dict[Break, int] = {
    starts_without_waiting: 1,
    raises_the_incarnation_with_an_approval_that_waits: 11,
    disturbs_all_domains_at_once: 2,
    loses_approved_events: 21,
    starts_all_domains_in_one_commit: 8,
    starts_freezes_out_of_nothing: 2,
    starts_what_is_due_as_soon_as_it_is_back: 1,
    starts_a_host_without_asking_everybody: 1,
    starts_outside_of_windows: 1,
    starts_a_host_with_a_machine_that_was_not_warned: 32,
    ends_events_before_their_machines_are_back: 6,
}


@pytest.mark.parametrize(("broken", "rules"), BROKEN, ids=lambda v: getattr(v, "__name__", ""))
def test_a_broken_service_is_caught(
    broken: Break, rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    found: set[str] = set()
    for seed in (CAUGHT_BY.get(broken, 0), *range(24)):
        script = Script(seed, Kill(20, often=True))
        sim = asyncio.run(script.run(300))
        found |= {finding.rule for finding in judge(sim.trace).findings}
        if found & rules:
            return
    pytest.fail(f"not caught; found only {found or 'nothing'}")


BY_MISSING_LINES: list[Break] = [  # which may also explain it
    starts_without_waiting,
    forgets_approvals,
    starts_over_after_a_restart,
    moves_the_time,
    announces_too_late,
    loses_approved_events,
    starts_what_is_due_as_soon_as_it_is_back,
    deletes_one_without_the_other,
    starts_a_host_without_asking_everybody,
    starts_what_is_halted,
    starts_outside_of_windows,
]


@pytest.mark.parametrize("broken", BY_MISSING_LINES)
def test_a_broken_killed_service_is_caught_by_its_own_recording(
    broken: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    found: set[str] = set()
    for seed in range(12):
        trace = asyncio.run(OwnScript(seed, Kill(20)).run(300)).trace
        assert any(line["kind"] == "gap" for line in trace)
        found |= {finding.rule for finding in judge(trace).findings}
        if found & dict(BROKEN)[broken]:
            return
    pytest.fail(f"not caught; found only {found or 'nothing'}")


def test_the_honest_service_is_not_accused() -> None:
    for seed in range(4):
        sim = asyncio.run(Script(seed, Kill(20, often=True)).run(300))
        judgement = judge(sim.trace)
        assert judgement.ok, judgement.render()


def test_a_service_that_waits_for_its_machines_is_not_accused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits_for_machines(monkeypatch)
    ends: set[bool] = set()
    for seed in range(4):
        sim = asyncio.run(Script(seed, Kill(20, often=True)).run(300))
        judgement = judge(sim.trace)
        assert judgement.ok, judgement.render()
        items = [i for c in sim.disk.commits for entry in c.entries for i in entry.items]
        moved = [item.event for item in items if isinstance(item, changes.EventMoved)]
        ends |= {bool(e.not_back) for e in moved if e.waiting and e.status.over}
    assert ends == {False, True}  # some machines came back, and some did not


def first_documents() -> list[dict[str, Any]]:
    """A trace that is complete: of a service that has just begun, and all that was asked of it."""

    async def asked() -> Simulation:
        sim = Simulation(0, Kill())
        await sim.start()
        for machine in NAMES:
            await sim.ask(machine, "GET", "2020-07-01")
        await sim.stop()
        return sim

    trace = asyncio.run(asked()).trace
    return [{**line, "complete": True} if line["kind"] == "fleet" else line for line in trace]


def test_a_service_that_begins_at_another_number_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert judge(first_documents()).ok
    begins_at_another_number(monkeypatch)
    assert {finding.rule for finding in judge(first_documents()).findings} == {"incarnation-start"}
