"""The cases at hand: opened when an event is first listed, told what is new about it, and closed.

A case is on disk before anything here knows of it, so whoever dies in between sees it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from forewarn.agent.config.model import Config
from forewarn.agent.planning import plan
from forewarn.agent.planning.match import matched
from forewarn.agent.planning.steps import CaseWithRuns
from forewarn.agent.ports import ExecutorPort
from forewarn.agent.state import cases
from forewarn.agent.state.cases import Case
from forewarn.agent.telemetry.log import Tell
from forewarn.client.events import Event, Look
from forewarn.client.identity import Identity

MAX_CASES = 1_000  # events that are handled at once; the rest has to wait, and is said to


class OpenCases:
    def __init__(
        self,
        config: Config,
        desk: ExecutorPort,
        tell: Tell,
        changed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`changed` is called with the id of every case that is new or has changed."""
        self._config = config
        self._desk = desk
        self._tell = tell
        self._changed = changed
        every = desk.cases()
        self._open = {case.id: case for case in every if case.open}
        self._done = {case.id: case for case in every if not case.open}
        self._boot = _boot()
        self._left_alone: set[str] = set()  # events that no rule is about
        self._crowded: set[str] = set()  # events that there is no room for, and that is told

    def __getitem__(self, id: str) -> Case:
        return self._open[id] if id in self._open else self._done[id]

    def __iter__(self) -> Iterator[Case]:
        return iter((*self._done.values(), *self._open.values()))

    @property
    def open(self) -> tuple[Case, ...]:
        """The cases that are being handled."""
        return tuple(self._open.values())

    def get(self, id: str) -> Case | None:
        """Return the case if it is being handled."""
        return self._open.get(id)

    def story(self, case: Case) -> CaseWithRuns:
        known = {hook.name for hook in case.hooks}  # whatever else lies there is not ours
        return CaseWithRuns(
            case, tuple(run for run in self._desk.runs(case.id) if run.hook in known)
        )

    @property
    def waits_for_news(self) -> bool:
        """Whether there is an event that may start, or be over, any moment."""
        return any(not case.over for case in self._open.values())

    # What is listed

    def see(self, look: Look, me: Identity) -> None:
        """Raises OSError if something of it cannot be kept; then the next look sees it again."""
        failed: list[OSError] = []
        listed = {event.id.upper(): event for event in look.document.events}
        self._left_alone &= listed.keys()
        self._crowded &= listed.keys()
        for case in self.open:
            if case.over:
                continue
            event = listed.pop(case.event.id.upper(), None)
            if event is None and case.event.type in look.hidden:
                continue
            if event is None:
                after = cases.gone(case, look.at, self._boot)
            else:
                after = cases.told(case, event, look.at)
            if after is not case:
                with _kept(failed):
                    self._put(after)
                    self._tell_of(case, after)
        full = len(self._open) >= MAX_CASES
        for id, event in listed.items():
            if id not in self._left_alone and not (full and id in self._crowded):
                with _kept(failed):
                    self._begin(event, me, look.at)
        if failed:
            raise failed[0]

    def _begin(self, event: Event, me: Identity, now: datetime) -> None:
        listed = next((name for name in event.resources if me.is_named(name)), None)
        rule = matched(self._config.rules, event, mine=listed is not None, tags=dict(me.tags))
        facts = {
            "event": event.id,
            "type": event.type,
            "status": event.status,
            "rule": None if rule is None else rule.name,
            "mine": listed is not None,
            "resources": event.resources,
            "not_before": event.not_before,
            "source": event.source,
            "duration": event.duration,
            "description": event.description,
        }
        if rule is None:
            self._left_alone.add(event.id.upper())
            self._tell("event seen", **facts)
            return
        if len(self._open) >= MAX_CASES:
            if event.id.upper() not in self._crowded:
                self._crowded.add(event.id.upper())
                says = f"{MAX_CASES:,} events are being handled, so {event.id} has to wait"
                self._tell("trouble", about="cases", why=says)
            return
        hooks = tuple(self._config.hooks[name] for name in rule.hooks)
        id = self._desk.new_id(event.id)
        machine = listed or me.name
        case = cases.opened(id, event, rule, hooks, machine, now, self._boot)
        self._put(case)
        begins = plan.begins(case)
        self._tell(
            "event seen",
            **facts,
            hooks=rule.hooks,
            approve=rule.approve,
            begins=None if begins is None else max(begins, now),
        )

    def _tell_of(self, before: Case, after: Case) -> None:
        if after.started and not before.started:
            self._tell("event started", event=after.event.id, type=after.event.type)
        if after.over:
            self._tell("event over", event=after.event.id, type=after.event.type, how=after.over)

    # What is done about it

    def change(self, id: str, **facts: Any) -> None:
        """It may have become another while one was waiting for an answer."""
        if (case := self._open.get(id)) is not None:
            self._put(msgspec.structs.replace(case, **facts))

    def close(self, case: Case, now: datetime) -> None:
        closed = msgspec.structs.replace(case, closed=now)
        self._desk.close(closed, plan.given_up(self.story(case)))
        del self._open[case.id]
        self._done[case.id] = closed
        self._changed(case.id)
        self._tell("event done", event=case.event.id, type=case.event.type, how=case.over)
        for forgotten in self._desk.prune(list(self._done.values()), now):
            del self._done[forgotten.id]

    def _put(self, case: Case) -> None:
        self._desk.put(case)
        self._open[case.id] = case
        self._changed(case.id)


@contextmanager
def _kept(failed: list[OSError]) -> Iterator[None]:
    """One that cannot be kept does not stand in the way of others."""
    try:
        yield
    except OSError as error:
        failed.append(error)


def _boot() -> str:
    """Another after each start of the machine; empty where there is no telling."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
