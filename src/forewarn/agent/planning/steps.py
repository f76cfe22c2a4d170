"""What planning is given, and what comes of it: stories and the time, and the steps that are next.
Values only; how one follows from the other is `plan.py`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Run


class Now(msgspec.Struct, frozen=True):
    service: datetime  # what is decided goes by the service's clock
    guard: float  # pauses between attempts go by the machine's own


class Order(msgspec.Struct, frozen=True):
    """A new run. `left`: seconds until it must have ended, if there is a deadline but its own."""

    case: str
    hook: Hook
    stage: Stage
    attempt: int
    left: float | None


class Start(msgspec.Struct, frozen=True):
    """One that is ordered and may not have a runner yet."""

    case: str
    run: Run
    left: float | None


class Cancel(msgspec.Struct, frozen=True):
    """One that was ordered is not to be begun."""

    case: str
    run: Run


class Stop(msgspec.Struct, frozen=True):
    """One that is at work has become pointless."""

    case: str
    run: Run


class Overdue(msgspec.Struct, frozen=True):
    """Report a run that is still at work after its time limit."""

    case: str
    run: Run


class Approve(msgspec.Struct, frozen=True):
    case: str


class SayReady(msgspec.Struct, frozen=True):
    case: str


class AskReady(msgspec.Struct, frozen=True):
    """Are the others ready?"""

    case: str


class Close(msgspec.Struct, frozen=True):
    case: str


Step = Order | Start | Cancel | Stop | Overdue | Approve | SayReady | AskReady | Close


class Plan(msgspec.Struct, frozen=True):
    steps: tuple[Step, ...] = ()
    wake: datetime | None = None  # look again then, by the service's clock
    rest: float | None = None  # or then, by the machine's own
    waits: tuple[str, ...] = ()  # also look again when one of these hooks is free


class CaseWithRuns(msgspec.Struct, frozen=True):
    case: Case
    runs: tuple[Run, ...] = ()

    def of(self, hook: str, stage: Stage) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.hook == hook and run.stage == stage)
