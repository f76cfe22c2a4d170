"""A run: one attempt at one stage of one hook. Values only; they are read off the files of its
directory by `store.py`.

| file | says |
|---|---|
| `order` | what to run, written by the agent before a runner is started |
| `lock` | held by the runner for as long as it lives |
| `begun` | the command may have been started |
| `command` | the command's process, written by itself while it still shares the runner's lock |
| `output` | what it said; `output.before`: what it said before that |
| `stop` | the agent wants it stopped |
| `result` | what became of it |
| `told` | the log has it |

So: no `begun`, it never ran, and may be started (again: of two runners one takes the lock, and the
other finds `begun`). Locked: it is at work. `result`: it is done. `begun`, but neither: its runner
died, and nobody knows how far it came. What `command` names, and its group, is then ended first.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from forewarn.agent.config.model import Stage


class State(StrEnum):
    ORDERED = "ordered"
    WORKING = "working"
    DONE = "done"
    LOST = "lost"


class Outcome(StrEnum):
    ENDED = "ended"  # by itself, with a code
    TIMED_OUT = "timed-out"
    STOPPED = "stopped"
    NOT_STARTED = "not-started"  # there is no such program, or it cannot be run
    NO_TIME = "no-time"  # it was not begun: too late
    CANCELLED = "cancelled"  # it was not begun: no longer wanted


class Result(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome
    code: int | None = None  # minus a signal's number if it died of one
    said: str = ""
    ended: float = 0.0  # on the machine's monotonic clock
    seconds: float = 0.0  # how long it took

    @property
    def good(self) -> bool:
        return self.outcome == Outcome.ENDED and self.code == 0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    number: int  # counted over all cases, in the order in which they were ordered
    hook: str
    stage: Stage
    attempt: int
    state: State
    deadline: float | None = None  # while it works, on the machine's monotonic clock
    result: Result | None = None

    @property
    def id(self) -> str:
        """The name of its directory."""
        return f"{self.number:06}.{self.stage}.{self.attempt}.{self.hook}"

    @property
    def active(self) -> bool:
        return self.state in (State.ORDERED, State.WORKING)

    @property
    def good(self) -> bool:
        return self.result is not None and self.result.good

    @property
    def touched(self) -> bool:
        """Whether it may have done anything."""
        if self.result is None:
            return self.state != State.ORDERED
        return self.result.outcome in (Outcome.ENDED, Outcome.TIMED_OUT, Outcome.STOPPED)


def named(directory: str) -> Run | None:
    """What a directory's name says, or None if it is none of ours."""
    parts = directory.split(".", 3)
    if len(parts) != 4 or not (parts[0].isdecimal() and parts[2].isdecimal()):
        return None
    said = {
        "number": int(parts[0]),
        "stage": parts[1],
        "attempt": int(parts[2]),
        "hook": parts[3],
        "state": State.ORDERED,
    }
    try:
        return msgspec.convert(said, Run)
    except msgspec.ValidationError:
        return None
