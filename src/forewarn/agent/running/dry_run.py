"""State and runners for a dry run: everything is kept in memory, nothing is run, and every command
that would have been run counts as a success."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path

import msgspec

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.ports import StartResult
from forewarn.agent.running.command import command_line
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Outcome, Result, Run, RunState
from forewarn.agent.telemetry.log import Log
from forewarn.support.guard import monotonic


class MemoryStore:
    """Cases and runs of a dry run."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[int, Run]] = {}
        self._last_case = 0
        self._last_run = 0

    def load_cases(self) -> list[Case]:
        return []

    def new_case_id(self, event_id: str) -> str:
        self._last_case += 1
        return f"{event_id}.{self._last_case}"

    def save(self, case: Case) -> None:
        self._runs.setdefault(case.id, {})

    def close(self, case: Case, given_up: Collection[str] = ()) -> None:
        del given_up
        del self._runs[case.id]

    def prune(self, closed: list[Case], now: datetime) -> list[Case]:
        del now
        return closed

    def runs(self, case_id: str) -> tuple[Run, ...]:
        return tuple(self._runs.get(case_id, {}).values())

    def add_run(self, case_id: str, hook: str, stage: Stage, attempt: int) -> Run:
        self._last_run += 1
        run = Run(
            number=self._last_run, hook=hook, stage=stage, attempt=attempt, state=RunState.ORDERED
        )
        self._runs[case_id][run.number] = run
        return run

    def complete_run(self, case_id: str, run: Run) -> None:
        result = Result(outcome=Outcome.ENDED, code=0, ended=monotonic())
        done = msgspec.structs.replace(run, state=RunState.DONE, result=result)
        self._runs[case_id][run.number] = done

    def cancel(self, case_id: str, run: Run) -> bool:
        del case_id, run
        raise AssertionError("a run is complete as soon as it is ordered")

    def request_stop(self, case_id: str, run: Run) -> None: ...

    def runner_pid(self, case_id: str, run: Run) -> int | None:
        del case_id, run
        return None

    def hook_directory(self, case_id: str, hook: str) -> Path:
        del case_id, hook
        raise AssertionError("nothing is stored")

    def output(self, case_id: str, run: Run) -> str:
        del case_id, run
        return ""

    def is_logged(self, case_id: str, run: Run) -> bool:
        """True: what would have been run is logged instead of outcomes."""
        del case_id, run
        return True

    def mark_logged(self, case_id: str, run: Run) -> None: ...


class DryRunners:
    """Logs the commands that would be run."""

    def __init__(self, store: MemoryStore, log: Log) -> None:
        self._store = store
        self._log = log

    def order(self, case: Case, hook: Hook, stage: Stage, attempt: int, left: float | None) -> Run:
        del left
        return self._store.add_run(case.id, hook.name, stage, attempt)

    def start(self, case: Case, hook: Hook, run: Run, left: float | None) -> StartResult:
        del left
        self._log(
            "would run",
            event=case.event.id,
            type=case.event.type,
            rule=case.rule.name,
            hook=hook.name,
            stage=run.stage,
            command=command_line(hook, run.stage),
        )
        self._store.complete_run(case.id, run)
        return StartResult(started=False, check_at=None)

    def watch(self, case_id: str, run: Run) -> None: ...

    def forget(self, case_id: str) -> None: ...
