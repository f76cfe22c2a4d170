"""The operators' verbs for rollouts: plan, start, look, pause, resume, abort, explain.

What they change is the plan and the switches; carrying out is `conductor.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from forewarn.core import EventType, Refused
from forewarn.core.events import (
    MAX_DESCRIPTION,
    MAX_DURATION_SECONDS,
    MAX_NOTICE,
    PROMISES,
    UNKNOWN_DURATION,
    Event,
)
from forewarn.core.forecast import TYPICAL, Forecast, forecast
from forewarn.core.holds import Hold
from forewarn.core.lanes import Selection, lanes
from forewarn.core.refusal import conflict, invalid, unknown
from forewarn.core.registry import RolloutPut, RolloutRemoved
from forewarn.core.rolling import Next, appointment
from forewarn.core.rollout import Gate, Rollout, Switch
from forewarn.core.standing import StepState, Wait
from forewarn.core.time import DAY, Duration
from forewarn.core.window_words import MAX_WINDOWS
from forewarn.core.windows import LOOK_AHEAD, Window
from forewarn.core.words import in_words, listing
from forewarn.service.conductor import ABORTED, Conductor, put, withdrawals
from forewarn.service.explaining import says
from forewarn.service.gates import Gates
from forewarn.service.platform import Platform
from forewarn.service.writer import Plan
from forewarn.store.port import States, Store

MAX_AT_ONCE = 1_000  # lanes
MAX_BAKE: Duration = 7 * DAY
MAX_RUNNING = 100  # rollouts that are not over
KEPT_ROLLOUTS = 1_000  # in all; the oldest that are over are forgotten


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout as somebody asks for it."""

    type: EventType
    selection: Selection
    by: str
    notice: Duration | None = None
    short_notice: bool = False
    description: str = ""
    duration: int = UNKNOWN_DURATION
    at_once: int = 1
    windows: tuple[Window, ...] = ()
    gate: Gate | None = None
    bake: Duration = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout, and where it stands."""

    rollout: Rollout
    next: Next

    @property
    def state(self) -> str:
        rollout = self.rollout
        if self.next.over:
            return self.next.over
        if rollout.aborted:
            return "aborting"
        if rollout.paused:
            return "paused"
        blocked = any(
            stands.state is StepState.CANCELLED for lane in self.next.lanes for stands in lane.steps
        )
        return "blocked" if blocked else "running"


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """One thing it waits for, and what the events that are part of it wait for."""

    wait: Wait
    events: tuple[tuple[Event, tuple[Hold, ...], str], ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    report: Report
    says: str
    waits: tuple[Explained, ...] = ()


class Rollouts:
    def __init__(
        self, store: Store, platform: Platform, conductor: Conductor, gates: Gates
    ) -> None:
        self._store = store
        self._platform = platform
        self._writer = platform.writer
        self._conductor = conductor
        self._gates = gates

    async def plan(
        self, wanted: Wanted, lasts: Duration | None = None
    ) -> tuple[Rollout, Forecast] | Refused:
        """What would happen when, if it were started now."""
        draft = self._draft(wanted)
        if isinstance(draft, Refused):
            return draft
        typical = TYPICAL if lasts is None else lasts
        if not 0 <= typical <= DAY:
            return invalid(f"an event lasts from 0 s to {in_words(DAY)}, not {in_words(typical)}")
        # A pure function, and perhaps a long one: the service goes on meanwhile.
        return draft, await asyncio.to_thread(forecast, draft, self._writer.now(), typical)

    async def start(self, wanted: Wanted) -> Report | Refused:
        draft = self._draft(wanted)
        if isinstance(draft, Refused):
            return draft

        def plan(states: States) -> Plan | Refused:
            known = states.registry.rollouts
            running = [rollout for rollout in known.values() if rollout.ended_at is None]
            if len(running) >= MAX_RUNNING:
                return conflict(f"{MAX_RUNNING} rollouts are under way, the most there can be")
            over = sorted(
                (rollout.ended_at, id)
                for id, rollout in known.items()
                if rollout.ended_at is not None
            )
            surplus = max(0, len(known) + 1 - KEPT_ROLLOUTS)
            removed = [RolloutRemoved(id) for _, id in over[:surplus]]
            return Plan(puts=[RolloutPut(draft, "started", wanted.by), *removed])

        done = await self._writer.submit_planned(plan)
        return done if isinstance(done, Refused) else await self._report(draft.id)

    async def pause(self, id: str, by: str, why: str = "") -> Report | Refused:
        def paused(rollout: Rollout, switch: Switch) -> RolloutPut | Refused:
            if rollout.paused is not None:
                return conflict(f"rollout {rollout.id} is paused already, by {rollout.paused.by}")
            return put(rollout, "paused", by, paused=switch)

        return await self._switch(id, by, why, paused)

    async def resume(self, id: str, by: str) -> Report | Refused:
        """Goes on after a pause, and announces again what somebody has cancelled."""
        found = await self.find(id)
        if isinstance(found, Refused):
            return found
        report = await self._report(found.id)
        if report.state == "running":
            return conflict(f"rollout {found.id} is neither paused nor blocked; nothing to resume")

        def resumed(rollout: Rollout, switch: Switch) -> RolloutPut:
            return put(rollout, "resumed", by, paused=None, resumed=switch)

        return await self._switch(found.id, by, "", resumed)

    async def abort(self, id: str, by: str, why: str = "") -> Report | Refused:
        """Withdraws what has not started, in one commit; what has started goes on to its end."""
        found = await self.find(id)
        if isinstance(found, Refused):
            return found

        def plan(states: States) -> Plan | Refused:
            rollout = states.registry.rollouts.get(found.id)
            if rollout is None or rollout.ended_at is not None or rollout.aborted is not None:
                return _over(rollout or found)
            mine = {
                event.id: event
                for group in states.values()
                for event in group.events
                if event.cause.startswith(found.prefix)
            }
            switch = Switch(by=by, at=self._writer.now().at, why=why)
            said = f"{ABORTED}: {why}" if why else ABORTED
            commands = withdrawals(states, mine, by, said)
            return Plan(commands, [put(rollout, "aborted", by, aborted=switch)])

        wrong = _wrong_words(why)
        done = wrong or await self._writer.submit_planned(plan)
        return done if isinstance(done, Refused) else await self._report(found.id)

    # Looking.

    async def list(self) -> Sequence[Report]:
        """Those under way first, then the latest that are over."""
        rollouts = self._store.registry.rollouts.values()
        order = sorted(rollouts, key=lambda r: (r.ended_at is not None, -r.created_at))
        return [await self._report(rollout.id) for rollout in order]

    async def find(self, id: str) -> Rollout | Refused:
        """By its id, or by the beginning of one, if that says which."""
        wanted = id.strip().upper()
        if not wanted:
            return invalid("give the id of a rollout, or its first characters")
        rollouts = self._store.registry.rollouts
        found = [rollout for rollout in rollouts.values() if rollout.id.startswith(wanted)]
        if not found:
            return unknown(f"no rollout '{id}'; there are {listing(list(rollouts))}")
        if len(found) > 1:
            return invalid(f"'{id}' could be {listing([rollout.id for rollout in found])}")
        return found[0]

    async def report(self, id: str) -> Report | Refused:
        found = await self.find(id)
        return found if isinstance(found, Refused) else await self._report(found.id)

    async def explain(self, id: str) -> Explanation | Refused:
        """What it waits for: the very waits that `step` has found, and the holds of its events."""
        report = await self.report(id)
        if isinstance(report, Refused):
            return report
        active = {event.id: event for lane in report.next.lanes for event in lane.active}
        waits = []
        for wait in report.next.waits:
            events = []
            for name in wait.events:
                holds = self._platform.holds(active[name])
                events.append((active[name], holds, says(active[name], holds)))
            waits.append(Explained(wait=wait, events=tuple(events)))
        return Explanation(report=report, says=_in_a_sentence(report), waits=tuple(waits))

    async def _report(self, id: str) -> Report:
        rollout = self._store.registry.rollouts[id]
        return Report(rollout=rollout, next=await self._conductor.look(rollout))

    async def _switch(
        self,
        id: str,
        by: str,
        why: str,
        change: Callable[[Rollout, Switch], RolloutPut | Refused],
    ) -> Report | Refused:
        found = _wrong_words(why) or await self.find(id)
        if isinstance(found, Refused):
            return found

        def plan(states: States) -> Plan | Refused:
            rollout = states.registry.rollouts.get(found.id)
            if rollout is None or rollout.ended_at is not None or rollout.aborted is not None:
                return _over(rollout or found)
            changed = change(rollout, Switch(by=by, at=self._writer.now().at, why=why))
            return changed if isinstance(changed, Refused) else Plan(puts=[changed])

        done = await self._writer.submit_planned(plan)
        return done if isinstance(done, Refused) else await self._report(found.id)

    def _draft(self, wanted: Wanted) -> Rollout | Refused:
        id = self._platform.new_id()
        found = (
            _wrong(wanted)
            or (self._gates.wrong(wanted.gate) if wanted.gate else None)
            or lanes(
                id,
                wanted.type,
                wanted.selection,
                self._store.groups,
                self._store.registry.hosts,
            )
        )
        if isinstance(found, Refused):
            return found
        now = self._writer.now()
        draft = Rollout(
            id=id,
            type=wanted.type,
            lanes=found,
            by=wanted.by,
            created_at=now.at,
            selection=str(wanted.selection),
            notice=wanted.notice,
            short_notice=wanted.short_notice,
            description=wanted.description,
            duration=wanted.duration,
            at_once=wanted.at_once,
            windows=wanted.windows,
            gate=wanted.gate,
            bake=wanted.bake,
        )
        if appointment(draft, now) is None:
            return invalid(
                f"none of the windows opens within {in_words(LOOK_AHEAD)};"
                " look at their days and hours"
            )
        return draft


def _wrong(wanted: Wanted) -> Refused | None:
    promised = PROMISES[wanted.type].notice
    notice = promised if wanted.notice is None else wanted.notice
    if not 0 <= notice <= MAX_NOTICE:
        return invalid(f"a notice is from 0 s to {in_words(MAX_NOTICE)}, not {in_words(notice)}")
    if notice < promised and not wanted.short_notice:
        return invalid(
            f"a {wanted.type.value} promises at least {in_words(promised)} of notice,"
            f" this is {in_words(notice)}; say that you mean it (--short-notice)"
        )
    if not 1 <= wanted.at_once <= MAX_AT_ONCE:
        return invalid(f"from 1 to {MAX_AT_ONCE} can go at once, not {wanted.at_once}")
    if not 0 <= wanted.bake <= MAX_BAKE:
        return invalid(f"a bake time is from 0 s to {in_words(MAX_BAKE)}")
    if not UNKNOWN_DURATION <= wanted.duration <= MAX_DURATION_SECONDS:
        return invalid(
            f"duration {wanted.duration} is not a length of impact: give whole seconds from 0"
            f" to {MAX_DURATION_SECONDS}, or -1 for unknown"
        )
    if len(wanted.windows) > MAX_WINDOWS:
        return invalid(f"a rollout has at most {MAX_WINDOWS} windows")
    return _wrong_words(wanted.description)


def _wrong_words(text: str) -> Refused | None:
    if len(text) <= MAX_DESCRIPTION:
        return None
    return invalid(f"these are {len(text)} characters; at most {MAX_DESCRIPTION} are allowed")


def _over(rollout: Rollout) -> Refused:
    how = "was aborted" if rollout.aborted else "is over"
    return conflict(f"rollout {rollout.id} {how}; start a new one")


def _in_a_sentence(report: Report) -> str:
    rollout, steps = report.rollout, [s for lane in report.next.lanes for s in lane.steps]
    over = sum(stands.state.over for stands in steps)
    far = f"{over} of {len(steps)} steps are over"
    match report.state:
        case "done":
            return f"it is done: {far}"
        case "aborted" | "aborting" as state:
            assert rollout.aborted is not None
            why = f": {rollout.aborted.why}" if rollout.aborted.why else ""
            rest = "" if state == "aborted" else "; what has started goes on to its end"
            return f"aborted by {rollout.aborted.by}{why}; {far}{rest}"
        case "paused":
            return f"it is paused; {far}"
        case "blocked":
            return f"somebody has cancelled one of its events; {far}"
    return f"it is under way; {far}"
