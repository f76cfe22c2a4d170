"""The input and output of planning: cases with their runs, the time, and the next steps. Values
only; the steps are derived in `plan.py`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Run


class World(msgspec.Struct, frozen=True):
    service: datetime  # the service's clock, by which decisions are made
    guard: float  # the machine's own clock, by which pauses between attempts are measured


class CaseProgress(msgspec.Struct, frozen=True):
    """A case and its runs so far."""

    case: Case
    runs: tuple[Run, ...] = ()

    def runs_of(self, hook: str, stage: Stage) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.hook == hook and run.stage == stage)


class Order(msgspec.Struct, frozen=True):
    """Order a new run. `left`: seconds within which it has to end, in addition to the hook's
    timeout."""

    case: str
    hook: Hook
    stage: Stage
    attempt: int
    left: float | None


class Start(msgspec.Struct, frozen=True):
    """Start a run that is ordered and may not have a runner yet."""

    case: str
    run: Run
    left: float | None


class Cancel(msgspec.Struct, frozen=True):
    """Cancel a run that is ordered and has become pointless."""

    case: str
    run: Run


class Stop(msgspec.Struct, frozen=True):
    """Stop a running command that has become pointless."""

    case: str
    run: Run


class ReportOverdue(msgspec.Struct, frozen=True):
    """Report a command that is still running after its time limit."""

    case: str
    run: Run


class Approve(msgspec.Struct, frozen=True):
    case: str


class ReportReady(msgspec.Struct, frozen=True):
    """Report to the other machines of the event that this one is ready."""

    case: str


class CheckReadiness(msgspec.Struct, frozen=True):
    """Check whether the other machines of the event are ready."""

    case: str


class Close(msgspec.Struct, frozen=True):
    case: str


ApprovalStep = Approve | ReportReady | CheckReadiness
Step = Order | Start | Cancel | Stop | ReportOverdue | ApprovalStep | Close


class Plan(msgspec.Struct, frozen=True):
    """The next steps, and when to plan again."""

    steps: tuple[Step, ...] = ()
    wake_at: datetime | None = None  # by the service's clock
    retry_at: float | None = None  # by the machine's own
    waits_for: tuple[str, ...] = ()  # hooks; also plan again when one of them is free
