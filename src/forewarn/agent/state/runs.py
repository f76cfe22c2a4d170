"""A run: one attempt at one stage of one hook. Values only; `store.py` reads them from the files of
the run's directory.

| file | meaning |
|---|---|
| `order` | what to run, written by the agent before a runner is started |
| `lock` | held by the runner for as long as it lives |
| `begun` | the command may have been started |
| `command` | the command's process, written by itself while it still shares the runner's lock |
| `output` | the command's output; `output.before`: the output before that |
| `stop` | the agent wants the command stopped |
| `result` | the outcome |
| `logged` | the outcome is in the log |

So: without `begun` it never ran, and may be started (again: of two runners one takes the lock, and
the other finds `begun`). Locked: it is running. `result`: it is done. `begun`, but neither: its
runner died, and how far the command came is unknown. What `command` names, and its group, is then
ended first.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from forewarn.agent.config.model import Stage


class RunState(StrEnum):
    ORDERED = "ordered"
    RUNNING = "running"
    DONE = "done"
    LOST = "lost"


class Outcome(StrEnum):
    ENDED = "ended"  # by itself, with an exit code
    TIMED_OUT = "timed-out"
    STOPPED = "stopped"
    NOT_STARTED = "not-started"  # the program does not exist, or cannot be run
    NO_TIME = "no-time"  # not started: too late
    CANCELLED = "cancelled"  # not started: no longer wanted


class RunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner runs: the content of the file `order`."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    stdin: dict[str, Any]
    directory: str  # the working directory
    timeout: float
    until: float | None  # on the machine's monotonic clock


class Result(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome
    code: int | None = None  # exit code; minus the signal's number if a signal ended it
    message: str = ""  # why it was not started
    ended: float = 0.0  # on the machine's monotonic clock
    seconds: float = 0.0  # how long it took

    @property
    def succeeded(self) -> bool:
        return self.outcome == Outcome.ENDED and self.code == 0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    number: int  # counted over all cases, in the order in which runs are ordered
    hook: str
    stage: Stage
    attempt: int
    state: RunState
    deadline: float | None = None  # while it runs, on the machine's monotonic clock
    result: Result | None = None

    @property
    def id(self) -> str:
        """The name of its directory."""
        return f"{self.number:06}.{self.stage}.{self.attempt}.{self.hook}"

    @property
    def active(self) -> bool:
        return self.state in (RunState.ORDERED, RunState.RUNNING)

    @property
    def succeeded(self) -> bool:
        return self.result is not None and self.result.succeeded

    @property
    def may_have_acted(self) -> bool:
        """Whether its command may have changed anything."""
        if self.result is None:
            return self.state != RunState.ORDERED
        return self.result.outcome in (Outcome.ENDED, Outcome.TIMED_OUT, Outcome.STOPPED)


def parse_id(directory: str) -> Run | None:
    """Return the run that a directory's name stands for; None if it is not a run's."""
    parts = directory.split(".", 3)
    if len(parts) != 4 or not (parts[0].isdecimal() and parts[2].isdecimal()):
        return None
    fields = {
        "number": int(parts[0]),
        "stage": parts[1],
        "attempt": int(parts[2]),
        "hook": parts[3],
        "state": RunState.ORDERED,
    }
    try:
        return msgspec.convert(fields, Run)
    except msgspec.ValidationError:
        return None
