"""A desk for a dry run: everything is kept in memory, nothing is run, and all goes well."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path

import msgspec

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.running.command import command
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Outcome, Result, Run, State
from forewarn.agent.telemetry.log import Tell
from forewarn.support.guard import monotonic


class DryRunExecutor:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._runs: dict[str, list[Run]] = {}
        self._number = 0
        self._ids = 0

    def cases(self) -> list[Case]:
        return []

    def new_id(self, event_id: str) -> str:
        self._ids += 1
        return f"{event_id}.{self._ids}"

    def put(self, case: Case) -> None:
        self._runs.setdefault(case.id, [])

    def close(self, case: Case, given_up: Collection[str] = ()) -> None:
        del given_up
        del self._runs[case.id]

    def prune(self, closed: list[Case], now: datetime) -> list[Case]:
        del now
        return closed

    def runs(self, case_id: str) -> tuple[Run, ...]:
        return tuple(self._runs.get(case_id, ()))

    def order(self, case: Case, hook: Hook, stage: Stage, attempt: int, left: float | None) -> Run:
        del left
        self._number += 1
        run = Run(
            number=self._number, hook=hook.name, stage=stage, attempt=attempt, state=State.ORDERED
        )
        self._runs[case.id].append(run)
        return run

    def start(self, case: Case, hook: Hook, run: Run, left: float | None) -> float | None:
        """What would have been run is said, and has been a success."""
        del left
        self._tell(
            "would run",
            event=case.event.id,
            type=case.event.type,
            rule=case.rule.name,
            hook=hook.name,
            stage=run.stage,
            command=command(hook, run.stage),
        )
        done = Result(outcome=Outcome.ENDED, code=0, ended=monotonic())
        runs = self._runs[case.id]
        runs[runs.index(run)] = msgspec.structs.replace(run, state=State.DONE, result=done)
        return 0.0

    def attend(self, case_id: str, run: Run) -> None: ...

    def cancel(self, case_id: str, run: Run) -> bool:
        del case_id, run
        raise AssertionError("nothing is ever only ordered")

    def stop(self, case_id: str, run: Run) -> None: ...

    def runner(self, case_id: str, run: Run) -> int | None:
        del case_id, run
        return None

    def room(self, case_id: str, hook: str) -> Path:
        del case_id, hook
        raise AssertionError("nothing is kept")

    def was_told(self, case_id: str, run: Run) -> bool:
        """As what would have been run."""
        del case_id, run
        return True

    def mark_told(self, case_id: str, run: Run) -> None: ...

    def output(self, case_id: str, run: Run) -> str:
        del case_id, run
        return ""
