"""The state on disk: cases and runs, in a directory that one agent has to itself.

Reads and writes; decides nothing. `pretending.py` offers the same without a disk.

    lock
    cases/CASE/case                 the case
    cases/CASE/runs/RUN/…           see runs.py
    cases/CASE/hooks/HOOK/          the hook's own, from prepare to undo
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

import msgspec

from forewarn.agent import durable, locking, ordering
from forewarn.agent.cases import Case
from forewarn.agent.config import Hook, Stage
from forewarn.agent.runs import Outcome, Result, Run, State, named
from forewarn.guard import monotonic

KEPT_CASES = 50  # that are over, for whoever asks what has been
KEPT_FOR = timedelta(days=7)
BOOT = Path("/proc/sys/kernel/random/boot_id")  # another after each start of the machine
MAX_SHOWN = 4_096  # bytes of a command's output that are shown, the last ones

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


class StateTaken(Exception):
    """Another agent works with this directory."""


class Unusable(Exception):
    """The state cannot be kept there; says why and what to do."""


class Shelf:
    def __init__(self, state: Path) -> None:
        """Takes the directory for as long as this process lives."""
        self.state = state
        self._cases = state / "cases"
        try:
            durable.make(self._cases)
            if wrong := durable.open_to(self._cases) or durable.open_to(state):
                raise Unusable(wrong)
            self._lock = locking.taken(state / "lock")
        except OSError as error:
            raise Unusable(f"{error.filename or state}: {error.strerror}") from error
        if self._lock is None:
            raise StateTaken(
                f"another agent works with {state} already; every agent needs a directory of its"
                " own ([agent] state)"
            )
        self._last = 0  # number of a run
        self._settled: dict[str, dict[str, Run]] = {}  # by case: what is done stays as it is
        self.unreadable: list[str] = []

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # Cases

    def cases(self) -> list[Case]:
        """All there are. What was half made when somebody died is cleared away."""
        found = []
        for directory in sorted(self._cases.iterdir()):
            try:
                case = msgspec.json.decode((directory / "case").read_bytes(), type=Case)
            except FileNotFoundError:
                durable.clear(directory)
                continue
            except (OSError, msgspec.DecodeError) as error:
                self.unreadable.append(f"{directory / 'case'}: {error}")
                continue
            found.append(case)
            for run in self._directories(case.id):
                self._last = max(self._last, run.number)
        return found

    def new_id(self, event_id: str) -> str:
        """A name that was not used before, also for an event that comes back."""
        safe = event_id if _SAFE.fullmatch(event_id) else sha256(event_id.encode()).hexdigest()[:32]
        number = 1
        while (self._cases / f"{safe}.{number}").exists():
            number += 1
        return f"{safe}.{number}"

    def put(self, case: Case) -> None:
        durable.make(self._cases / case.id)
        durable.put(self._cases / case.id / "case", msgspec.json.encode(case))

    def close(self, case: Case, given_up: Collection[str] = ()) -> None:
        """All is done. What hooks have kept for themselves is not needed any more, but of those
        whose undo was given up: whoever does it by hand may need it."""
        self.put(case)
        for hook in case.hooks:
            if hook.name not in given_up:
                durable.clear(self._cases / case.id / "hooks" / hook.name)

    def prune(self, closed: Iterable[Case], now: datetime) -> list[Case]:
        """Those that are forgotten: more than are kept, or too old."""
        newest = sorted(closed, key=lambda case: case.closed or now, reverse=True)
        old = [case for case in newest if case.closed and now - case.closed > KEPT_FOR]
        dropped = [*newest[KEPT_CASES:], *(case for case in old if case in newest[:KEPT_CASES])]
        for case in dropped:
            durable.drop(self._cases / case.id / "case")
            durable.clear(self._cases / case.id)
            self._settled.pop(case.id, None)
        return dropped

    # Runs

    def runs(self, case_id: str) -> tuple[Run, ...]:
        return tuple(sorted(self._read(case_id), key=lambda run: run.number))

    def order(self, case: Case, hook: Hook, stage: Stage, attempt: int, left: float | None) -> Run:
        """Written down; whoever starts it comes after that."""
        self._last += 1
        run = Run(
            number=self._last, hook=hook.name, stage=stage, attempt=attempt, state=State.ORDERED
        )
        self.order_again(case, hook, run, left)
        return run

    def order_again(self, case: Case, hook: Hook, run: Run, left: float | None) -> None:
        """With the time there is now."""
        room = self._cases / case.id / "hooks" / hook.name
        durable.make(room)
        until = None if left is None else monotonic() + left
        order = ordering.ordered(case, hook, run.stage, run.attempt, room, until)
        directory = self.directory(case.id, run)
        durable.make(directory)
        durable.put(directory / "order", msgspec.json.encode(order))

    def cancel(self, case_id: str, run: Run) -> bool:
        """So that no runner begins it. False: one has it already."""
        directory = self.directory(case_id, run)
        lock = locking.taken(directory / "lock")
        if lock is None:
            return False
        try:
            if (directory / "begun").exists():
                return False
            if not (directory / "result").exists():
                result = Result(outcome=Outcome.CANCELLED, ended=monotonic())
                durable.put(directory / "result", msgspec.json.encode(result))
            return True
        finally:
            os.close(lock)

    def stop(self, case_id: str, run: Run) -> None:
        """Its runner looks for this, and ends the command as if its time was up."""
        path = self.directory(case_id, run) / "stop"
        if not path.exists():
            durable.put(path, b"")

    def runner(self, case_id: str, run: Run) -> int | None:
        """The process that is at work on it."""
        try:
            said = msgspec.json.decode((self.directory(case_id, run) / "begun").read_bytes())
            return int(said["runner"])
        except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError):
            return None

    def output(self, case_id: str, run: Run) -> str:
        """The last of what it said."""
        directory = self.directory(case_id, run)
        said = b""
        for name in ("output", "output.before"):
            if len(said) < MAX_SHOWN:
                with contextlib.suppress(OSError):
                    said = (directory / name).read_bytes() + said
        return said[-MAX_SHOWN:].decode("utf-8", "replace").strip()

    def was_told(self, case_id: str, run: Run) -> bool:
        return (self.directory(case_id, run) / "told").exists()

    def mark_told(self, case_id: str, run: Run) -> None:
        """If that is lost it is told twice, which is better than never."""
        with contextlib.suppress(OSError):
            (self.directory(case_id, run) / "told").touch(durable.PRIVATE)

    def directory(self, case_id: str, run: Run) -> Path:
        return self._cases / case_id / "runs" / run.id

    def _directories(self, case_id: str) -> Iterable[Run]:
        try:
            names = [path.name for path in (self._cases / case_id / "runs").iterdir()]
        except FileNotFoundError:
            return
        for name in names:
            if run := named(name):
                yield run

    def _read(self, case_id: str) -> Iterable[Run]:
        settled = self._settled.setdefault(case_id, {})
        for run in self._directories(case_id):
            directory = self.directory(case_id, run)
            if run.id in settled or not (directory / "order").exists():
                continue  # somebody died before it was ordered
            found = _found(directory, run)
            if found.active:
                yield found
            else:
                settled[run.id] = found
        yield from settled.values()  # also if somebody has removed them meanwhile


def _found(directory: Path, run: Run) -> Run:
    """How it stands, by its files."""
    if (result := _result(directory)) is not None:
        return msgspec.structs.replace(run, state=State.DONE, result=result)
    if not (directory / "begun").exists():
        return run
    if locking.held(directory / "lock"):
        return msgspec.structs.replace(run, state=State.WORKING)
    if (result := _result(directory)) is not None:  # it has ended just now
        return msgspec.structs.replace(run, state=State.DONE, result=result)
    if _orphaned(directory):
        return msgspec.structs.replace(run, state=State.WORKING)
    return msgspec.structs.replace(run, state=State.LOST)


def _result(directory: Path) -> Result | None:
    try:
        result = msgspec.json.decode((directory / "result").read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError):
        return None
    if result.ended > monotonic():  # of a life of the machine before this one
        return msgspec.structs.replace(result, ended=0.0)
    return result


def _orphaned(directory: Path) -> bool:
    """Its runner was killed and the command was not: nobody watches it any more, so it is ended.
    True until it has."""
    try:
        pid, born, boot = (directory / "command").read_text().split()
        if boot != BOOT.read_text().strip():  # then it is somebody else's number
            return False
        stat = Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()
        if stat[19] != born or stat[0] in "ZX":
            return False
        os.killpg(int(pid), signal.SIGKILL)
    except (OSError, ValueError, IndexError, AttributeError):
        return False
    return True
