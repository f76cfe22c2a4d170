"""The agent's cases: opened when an event is first listed, updated while it is, and closed.

A case is on disk before it is known here, so an agent that dies in between sees its event again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec

from forewarn.agent.config.model import Config
from forewarn.agent.config.rules import first_match
from forewarn.agent.planning import plan
from forewarn.agent.planning.steps import CaseProgress
from forewarn.agent.ports import Store
from forewarn.agent.state import cases
from forewarn.agent.state.cases import Case
from forewarn.agent.telemetry.log import Log
from forewarn.client.events import Event, Snapshot
from forewarn.client.identity import Identity
from forewarn.support.system import boot_id

MAX_CASES = 1_000  # events that are handled at once; others wait, which is logged


class OpenCases:
    """All cases: those that are open, and those that are closed and still kept."""

    def __init__(
        self,
        config: Config,
        store: Store,
        log: Log,
        on_change: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_change` is called with the ID of every case that is new or has changed."""
        self._config = config
        self._store = store
        self._log = log
        self._on_change = on_change
        loaded = store.load_cases()
        self._open = {case.id: case for case in loaded if case.open}
        self._closed = {case.id: case for case in loaded if not case.open}
        self._boot = boot_id()
        self._unmatched: set[str] = set()  # listed events that no rule matches
        self._waiting: set[str] = set()  # listed events beyond MAX_CASES, which have been logged

    def __getitem__(self, id: str) -> Case:
        return self._open[id] if id in self._open else self._closed[id]

    def __iter__(self) -> Iterator[Case]:
        return iter((*self._closed.values(), *self._open.values()))

    @property
    def open(self) -> tuple[Case, ...]:
        """The cases that are being handled."""
        return tuple(self._open.values())

    def get(self, id: str) -> Case | None:
        """Return the case if it is being handled."""
        return self._open.get(id)

    def progress(self, case: Case) -> CaseProgress:
        """Return the case with its runs as they are now."""
        names = {hook.name for hook in case.hooks}  # a hook may have put other files there
        runs = tuple(run for run in self._store.runs(case.id) if run.hook in names)
        return CaseProgress(case, runs)

    @property
    def any_event_pending(self) -> bool:
        """Whether an event that is being handled may start, or be over, at any moment."""
        return any(not case.over for case in self._open.values())

    # Events as they are listed

    def update(self, snapshot: Snapshot, identity: Identity) -> None:
        """Open, update and end cases according to the document. Raises OSError if some of that
        cannot be stored; the next snapshot then makes up for it."""
        errors: list[OSError] = []
        listed = {event.id.upper(): event for event in snapshot.document.events}
        self._unmatched &= listed.keys()
        self._waiting &= listed.keys()
        for case in self.open:
            if case.over:
                continue
            event = listed.pop(case.event.id.upper(), None)
            if event is None and case.event.type in snapshot.hidden_types:
                continue
            if event is None:
                changed = cases.end_event(case, snapshot.at, self._boot)
            else:
                changed = cases.update_event(case, event, snapshot.at)
            if changed is not case:
                with _collect(errors):
                    self._save(changed)
                    self._log_change(case, changed)
        full = len(self._open) >= MAX_CASES
        for id, event in listed.items():
            if id not in self._unmatched and not (full and id in self._waiting):
                with _collect(errors):
                    self._open_case(event, identity, snapshot.at)
        if errors:
            raise errors[0]

    def _open_case(self, event: Event, identity: Identity, now: datetime) -> None:
        listed = next((name for name in event.resources if identity.matches(name)), None)
        mine = listed is not None
        rule = first_match(self._config.rules, event, mine=mine, tags=dict(identity.tags))
        facts = {
            "event": event.id,
            "type": event.type,
            "status": event.status,
            "rule": None if rule is None else rule.name,
            "mine": mine,
            "resources": event.resources,
            "not_before": event.not_before,
            "source": event.source,
            "duration": event.duration,
            "description": event.description,
        }
        if rule is None:
            self._unmatched.add(event.id.upper())
            self._log("event seen", **facts)
            return
        if len(self._open) >= MAX_CASES:
            if event.id.upper() not in self._waiting:
                self._waiting.add(event.id.upper())
                reason = f"{MAX_CASES:,} events are being handled, so {event.id} has to wait"
                self._log("problem", about="cases", why=reason)
            return
        hooks = tuple(self._config.hooks[name] for name in rule.hooks)
        id = self._store.new_case_id(event.id)
        machine = listed or identity.name
        case = cases.open_case(id, event, rule, hooks, machine, now, self._boot)
        self._save(case)
        begins = plan.preparation_start(case)
        self._log(
            "event seen",
            **facts,
            hooks=rule.hooks,
            approve=rule.approve,
            begins=None if begins is None else max(begins, now),
        )

    def _log_change(self, before: Case, after: Case) -> None:
        facts = {"event": after.event.id, "type": after.event.type}
        if after.started and not before.started:
            self._log("event started", **facts)
        if after.over:
            self._log("event ended", **facts, outcome=after.over)

    # Changes that the agent makes

    def change(self, id: str, **fields: Any) -> None:
        """Change an open case as it is now: it may have changed during a request."""
        if (case := self._open.get(id)) is not None:
            self._save(msgspec.structs.replace(case, **fields))

    def close(self, case: Case, now: datetime) -> None:
        closed = msgspec.structs.replace(case, closed=now)
        self._store.close(closed, plan.given_up_undos(self.progress(case)))
        del self._open[case.id]
        self._closed[case.id] = closed
        self._on_change(case.id)
        self._log("event handled", event=case.event.id, type=case.event.type, outcome=case.over)
        for removed in self._store.prune(list(self._closed.values()), now):
            del self._closed[removed.id]

    def _save(self, case: Case) -> None:
        self._store.save(case)
        self._open[case.id] = case
        self._on_change(case.id)


@contextmanager
def _collect(errors: list[OSError]) -> Iterator[None]:
    """Collect errors, so that one case that cannot be stored does not keep others from it."""
    try:
        yield
    except OSError as error:
        errors.append(error)
