"""What the agent's loop needs: a client, a store for cases and runs, and runners for commands.

The store is `state/store.py` and the runners `running/runners.py`; a dry run has its own of both in
`running/dry_run.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Run
from forewarn.client.events import EndpointStatus, Event, Snapshot
from forewarn.client.identity import Identity


class Readiness(Protocol):
    @property
    def waiting(self) -> tuple[str, ...]: ...


class Client(Protocol):
    """The part of `forewarn.client.AsyncClient` that the agent uses."""

    def snapshots(self, max_wait: Callable[[], float] | None = None) -> AsyncIterator[Snapshot]: ...

    async def identity(self) -> Identity: ...

    async def approve(self, *events: Event | str, timeout: float = ...) -> None: ...

    async def report_ready(
        self, event: Event | str, note: str = "", *, timeout: float = ...
    ) -> Readiness | None: ...

    async def readiness(self, event: Event | str, *, timeout: float = ...) -> Readiness | None: ...

    def now(self) -> datetime: ...

    @property
    def status(self) -> EndpointStatus: ...


class Store(Protocol):
    """Cases and their runs. See `StateStore` for what each method does."""

    def load_cases(self) -> list[Case]: ...

    def new_case_id(self, event_id: str) -> str: ...

    def save(self, case: Case) -> None: ...

    def close(self, case: Case, given_up: Collection[str] = ()) -> None: ...

    def prune(self, closed: list[Case], now: datetime) -> list[Case]: ...

    def runs(self, case_id: str) -> tuple[Run, ...]: ...

    def cancel(self, case_id: str, run: Run) -> bool: ...

    def request_stop(self, case_id: str, run: Run) -> None: ...

    def runner_pid(self, case_id: str, run: Run) -> int | None: ...

    def hook_directory(self, case_id: str, hook: str) -> Path: ...

    def output(self, case_id: str, run: Run) -> str: ...

    def is_logged(self, case_id: str, run: Run) -> bool: ...

    def mark_logged(self, case_id: str, run: Run) -> None: ...


class StartResult(NamedTuple):
    started: bool  # whether a runner was started just now
    check_at: float | None  # the guard time at which to check the run again


class Runners(Protocol):
    """Runs of commands. See `running.runners.Runners` for what each method does."""

    def order(
        self, case: Case, hook: Hook, stage: Stage, attempt: int, left: float | None
    ) -> Run: ...

    def start(self, case: Case, hook: Hook, run: Run, left: float | None) -> StartResult: ...

    def watch(self, case_id: str, run: Run) -> None: ...

    def forget(self, case_id: str) -> None: ...
