"""The shelf and the runners as one: what is ordered is on disk before anybody starts it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.running.start import Runners
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Run
from forewarn.agent.state.store import StateStore
from forewarn.support.guard import Tasks, monotonic

START_PAUSE = 1.0  # seconds before a runner that did not even begin is started again


class Executor:
    def __init__(self, shelf: StateStore, ended: Callable[[str], None], tasks: Tasks) -> None:
        """`ended` is called with the id of a case whose command has ended, or may have."""
        self._shelf = shelf
        self._runners = Runners(lambda directory: ended(shelf.case_of(directory)), tasks)
        self._fresh: set[Path] = set()
        self._started: dict[Path, float] = {}

    def cases(self) -> list[Case]:
        return self._shelf.cases()

    def new_id(self, event_id: str) -> str:
        return self._shelf.new_id(event_id)

    def put(self, case: Case) -> None:
        self._shelf.put(case)

    def close(self, case: Case, given_up: Collection[str] = ()) -> None:
        self._shelf.close(case, given_up)
        for run in self._shelf.runs(case.id):
            self._runners.forget(self._shelf.directory(case.id, run))

    def prune(self, closed: list[Case], now: datetime) -> list[Case]:
        return self._shelf.prune(closed, now)

    def runs(self, case_id: str) -> tuple[Run, ...]:
        return self._shelf.runs(case_id)

    def order(self, case: Case, hook: Hook, stage: Stage, attempt: int, left: float | None) -> Run:
        run = self._shelf.order(case, hook, stage, attempt, left)
        self._fresh.add(self._shelf.directory(case.id, run))
        return run

    def start(self, case: Case, hook: Hook, run: Run, left: float | None) -> float | None:
        """None: a runner is on its way. Zero: one is now. Else: not before then. Raises OSError."""
        directory = self._shelf.directory(case.id, run)
        if directory not in self._fresh:
            if self._runners.on_its_way(directory):
                return None
            again = self._started.get(directory, 0.0) + START_PAUSE
            if monotonic() < again:
                return again
            self._shelf.order_again(case, hook, run, left)
        self._started = {directory: monotonic()} | {
            other: at for other, at in self._started.items() if monotonic() - at < START_PAUSE
        }
        self._runners.start(directory)
        self._fresh.discard(directory)
        return 0.0

    def attend(self, case_id: str, run: Run) -> None:
        directory = self._shelf.directory(case_id, run)
        self._runners.watch(directory, lambda: self._shelf.runner(case_id, run))

    def cancel(self, case_id: str, run: Run) -> bool:
        return self._shelf.cancel(case_id, run)

    def stop(self, case_id: str, run: Run) -> None:
        self._shelf.stop(case_id, run)

    def runner(self, case_id: str, run: Run) -> int | None:
        return self._shelf.runner(case_id, run)

    def room(self, case_id: str, hook: str) -> Path:
        return self._shelf.room(case_id, hook)

    def output(self, case_id: str, run: Run) -> str:
        return self._shelf.output(case_id, run)

    def was_told(self, case_id: str, run: Run) -> bool:
        return self._shelf.was_told(case_id, run)

    def mark_told(self, case_id: str, run: Run) -> None:
        self._shelf.mark_told(case_id, run)
