"""What the agent needs of others: a client, and a desk where cases are kept and commands run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Protocol

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Run
from forewarn.client.events import Event, Look
from forewarn.client.identity import Identity
from forewarn.client.status import EndpointStatus


class Waiting(Protocol):
    @property
    def waiting(self) -> tuple[str, ...]: ...


class Client(Protocol):
    """Of `forewarn.client.AsyncClient`."""

    def looks(self, within: Callable[[], float] | None = None) -> AsyncIterator[Look]: ...

    async def identity(self) -> Identity: ...

    async def approve(self, *events: Event | str, patience: float = ...) -> None: ...

    async def ready(
        self, event: Event | str, note: str = "", *, patience: float = ...
    ) -> Waiting | None: ...

    async def readiness(self, event: Event | str, *, patience: float = ...) -> Waiting | None: ...

    def now(self) -> datetime: ...

    @property
    def standing(self) -> EndpointStatus: ...


class ExecutorPort(Protocol):
    """`agent/running/executor.py`, or `agent/running/dry_run.py` for a dry run."""

    def cases(self) -> list[Case]: ...

    def new_id(self, event_id: str) -> str: ...

    def put(self, case: Case) -> None: ...

    def close(self, case: Case, given_up: Collection[str] = ()) -> None: ...

    def prune(self, closed: list[Case], now: datetime) -> list[Case]: ...

    def runs(self, case_id: str) -> tuple[Run, ...]: ...

    def order(
        self, case: Case, hook: Hook, stage: Stage, attempt: int, left: float | None
    ) -> Run: ...

    def start(self, case: Case, hook: Hook, run: Run, left: float | None) -> float | None:
        """None: a runner is on its way. Zero: one is now. Else: not before then, by guard time."""
        ...

    def attend(self, case_id: str, run: Run) -> None: ...

    def cancel(self, case_id: str, run: Run) -> bool: ...

    def stop(self, case_id: str, run: Run) -> None: ...

    def runner(self, case_id: str, run: Run) -> int | None:
        """Return the process ID of the run's runner, if it is known."""
        ...

    def room(self, case_id: str, hook: str) -> Path:
        """Return the directory that a hook has for a case."""
        ...

    def output(self, case_id: str, run: Run) -> str: ...

    def was_told(self, case_id: str, run: Run) -> bool:
        """Whether its end has been told, perhaps by an agent before this one."""
        ...

    def mark_told(self, case_id: str, run: Run) -> None: ...
