"""The state on disk: cases and runs, in a directory that one agent has to itself.

Reads and writes; decides nothing. `agent/running/dry_run.py` offers the same without a disk.

    lock
    cases/CASE/case                 the case
    cases/CASE/runs/RUN/…           see runs.py
    hooks/CASE/HOOK/                the hook's own directory, from prepare to undo

Hooks run as the same user as the agent, so they can change anything here. Whatever they do to their
own directory or to the agent's records, the agent continues from what it has in memory: files that
were removed or replaced are written again, and a run that was ordered is never forgotten.
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

from forewarn.agent.config.model import Hook, Stage
from forewarn.agent.running import command, processes
from forewarn.agent.state import durable, locking
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Outcome, Result, Run, State, named
from forewarn.support.guard import monotonic

KEPT_CASES = 50  # that are over, for whoever asks what has been
KEPT_FOR = timedelta(days=7)
BOOT = Path("/proc/sys/kernel/random/boot_id")  # another after each start of the machine
MAX_SHOWN = 4_096  # bytes of a command's output that are shown, the last ones

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


class StateTaken(Exception):
    """Another agent works with this directory."""


class StateUnusable(Exception):
    """The state cannot be kept there; says why and what to do."""


class StateStore:
    def __init__(self, state: Path) -> None:
        """Takes the directory for as long as this process lives."""
        self.state = state
        self._cases = state / "cases"
        self._rooms = state / "hooks"
        try:
            durable.make(self._cases)
            if wrong := durable.open_to(self._cases) or durable.open_to(state):
                raise StateUnusable(wrong)
            self._lock = locking.taken_with_directory(state / "lock")
        except OSError as error:
            raise StateUnusable(f"{error.filename or state}: {error.strerror}") from error
        if self._lock is None:
            raise StateTaken(
                f"another agent works with {state} already; every agent needs a directory of its"
                " own ([agent] state)"
            )
        self._last = 0  # number of a run
        self._kept: dict[str, Case] = {}  # as they were last written
        self._runs: dict[str, dict[str, Run]] = {}  # by case: all that were ordered
        self._locks: dict[Path, int] = {}  # of runs that are active, open but not held
        self._to_verify: set[str] = set()  # cases whose record a command may have damaged
        self.unreadable: list[str] = []

    def release(self) -> None:
        for file in self._lock or ():
            os.close(file)
        self._lock = None
        while self._locks:
            os.close(self._locks.popitem()[1])

    # Cases

    def cases(self) -> list[Case]:
        """All there are. What was half made when somebody died is cleared away."""
        found = []
        for directory in sorted(self._cases.iterdir()):
            try:
                self._own(directory)
                case = msgspec.json.decode((directory / "case").read_bytes(), type=Case)
            except FileNotFoundError:
                durable.clear(directory)
                continue
            except (OSError, msgspec.DecodeError) as error:
                self.unreadable.append(f"{directory / 'case'}: {error}")
                continue
            found.append(case)
            self._kept[case.id] = case
            for run in self._load(case.id).values():
                self._last = max(self._last, run.number)
        self._clear_rooms()
        return found

    def _clear_rooms(self) -> None:
        """Remove the hooks' directories of cases that have been forgotten."""
        with contextlib.suppress(OSError):
            for rooms in self._rooms.iterdir():
                if not (self._cases / rooms.name).exists():
                    durable.clear(rooms)

    def new_id(self, event_id: str) -> str:
        """A name that was not used before, also for an event that comes back."""
        safe = event_id if _SAFE.fullmatch(event_id) else sha256(event_id.encode()).hexdigest()[:32]
        number = 1
        while (self._cases / f"{safe}.{number}").exists():
            number += 1
        return f"{safe}.{number}"

    def put(self, case: Case) -> None:
        self._own(self._cases / case.id)
        durable.put(self._cases / case.id / "case", msgspec.json.encode(case))
        self._kept[case.id] = case

    def close(self, case: Case, given_up: Collection[str] = ()) -> None:
        """All is done. What hooks have kept for themselves is not needed any more, but of those
        whose undo was given up: whoever does it by hand may need it."""
        self.put(case)
        for hook in case.hooks:
            if hook.name not in given_up:
                durable.clear(self.room(case.id, hook.name))
        with contextlib.suppress(OSError):  # one that is not empty stays
            (self._rooms / case.id).rmdir()

    def prune(self, closed: Iterable[Case], now: datetime) -> list[Case]:
        """Those that are forgotten: more than are kept, or too old."""
        newest = sorted(closed, key=lambda case: case.closed or now, reverse=True)
        old = [case for case in newest if case.closed and now - case.closed > KEPT_FOR]
        dropped = [*newest[KEPT_CASES:], *(case for case in old if case in newest[:KEPT_CASES])]
        for case in dropped:
            durable.drop(self._cases / case.id / "case")
            durable.clear(self._cases / case.id)
            durable.clear(self._rooms / case.id)
            for known in (self._kept, self._runs):
                known.pop(case.id, None)
        return dropped

    # Runs

    def runs(self, case_id: str) -> tuple[Run, ...]:
        runs = self._runs[case_id] if case_id in self._runs else self._load(case_id)
        for run in [run for run in runs.values() if run.active]:
            runs[run.id] = found = self._look(case_id, run)
            if not found.active:
                self._forget_lock(self.directory(case_id, found))
                self._to_verify.add(case_id)
        if case_id in self._to_verify:
            self._verify(case_id)
            self._to_verify.discard(case_id)
        return tuple(sorted(runs.values(), key=lambda run: run.number))

    def order(self, case: Case, hook: Hook, stage: Stage, attempt: int, left: float | None) -> Run:
        """Written down; whoever starts it comes after that."""
        self._last += 1
        run = Run(
            number=self._last, hook=hook.name, stage=stage, attempt=attempt, state=State.ORDERED
        )
        self.order_again(case, hook, run, left)
        self._runs.setdefault(case.id, {})[run.id] = run
        self._open_lock(self.directory(case.id, run))  # before the command, which may remove it
        return run

    def order_again(self, case: Case, hook: Hook, run: Run, left: float | None) -> None:
        """With the time there is now."""
        room = self.room(case.id, hook.name)
        self._own(room)
        until = None if left is None else monotonic() + left
        order = command.ordered(case, hook, run.stage, run.attempt, room, until)
        directory = self.directory(case.id, run)
        self._own(directory)
        durable.put(directory / "order", msgspec.json.encode(order))

    def cancel(self, case_id: str, run: Run) -> bool:
        """So that no runner begins it. False: one has it already."""
        directory = self.directory(case_id, run)
        self._own(directory)
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
        directory = self.directory(case_id, run)
        self._own(directory)
        if not (directory / "stop").exists():
            durable.put(directory / "stop", b"")

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
                    said = durable.end_of(directory / name, MAX_SHOWN) + said
        return said[-MAX_SHOWN:].decode("utf-8", "replace").strip()

    def was_told(self, case_id: str, run: Run) -> bool:
        return (self.directory(case_id, run) / "told").exists()

    def mark_told(self, case_id: str, run: Run) -> None:
        """If that is lost it is told twice, which is better than never."""
        with contextlib.suppress(OSError):
            (self.directory(case_id, run) / "told").touch(durable.PRIVATE)

    def directory(self, case_id: str, run: Run) -> Path:
        return self._cases / case_id / "runs" / run.id

    def case_of(self, directory: Path) -> str:
        """Return the id of the case that this directory of a run belongs to."""
        return directory.parent.parent.name

    def room(self, case_id: str, hook: str) -> Path:
        return self._rooms / case_id / hook

    def _own(self, directory: Path) -> None:
        """Make it a usable directory again, whatever a hook has done to it."""
        durable.own(directory, self.state)

    def _load(self, case_id: str) -> dict[str, Run]:
        """Load the runs that an earlier agent process has ordered."""
        runs = self._runs[case_id] = {}
        try:
            self._own(self._cases / case_id / "runs")
            names = [path.name for path in (self._cases / case_id / "runs").iterdir()]
        except FileNotFoundError:
            return runs
        for name in names:
            if (run := named(name)) is None:
                continue
            directory = self.directory(case_id, run)
            self._own(directory)
            if (directory / "order").exists():  # else somebody died before it was ordered
                runs[run.id] = run
        return runs

    def _look(self, case_id: str, run: Run) -> Run:
        """Return the run in the state that its files show."""
        directory = self.directory(case_id, run)
        for last in (False, True):
            try:
                if (found := self._found(directory, run)).state != State.LOST:
                    return found
                orphaned = _end_orphans(directory, self.room(case_id, run.hook))
                return self._working(directory, run) if orphaned else found
            except PermissionError:
                if last:
                    raise
                self._own(directory)
        raise AssertionError

    def _found(self, directory: Path, run: Run) -> Run:
        if (result := _result(directory)) is not None:
            return msgspec.structs.replace(run, state=State.DONE, result=result)
        ordered, begun = (directory / "order").exists(), (directory / "begun").exists()
        if run.state == State.ORDERED and ordered and not begun:
            return run
        if self._held(directory):
            return self._working(directory, run)
        if (result := _result(directory)) is not None:  # it has ended just now
            return msgspec.structs.replace(run, state=State.DONE, result=result)
        return msgspec.structs.replace(run, state=State.LOST)

    def _working(self, directory: Path, run: Run) -> Run:
        if run.state == State.WORKING and run.deadline is not None:
            return run
        return msgspec.structs.replace(run, state=State.WORKING, deadline=_deadline(directory))

    def _held(self, directory: Path) -> bool:
        """Whether a runner holds the lock of this run."""
        return locking.held_elsewhere(self._open_lock(directory))

    def _open_lock(self, directory: Path) -> int:
        """The lock of a run. It is opened only once, so that it can be tried even if its file is
        removed in the meantime."""
        if directory not in self._locks:
            self._own(directory)
            self._locks[directory] = locking.opened(directory / "lock")
        return self._locks[directory]

    def _forget_lock(self, directory: Path) -> None:
        if (lock := self._locks.pop(directory, None)) is not None:
            os.close(lock)

    def _verify(self, case_id: str) -> None:
        """Write records again that a command has removed: after a restart they are all that the
        agent knows."""
        if case_id in self._kept and not (self._cases / case_id / "case").exists():
            self.put(self._kept[case_id])
        for run in self._runs[case_id].values():
            directory = self.directory(case_id, run)
            if run.active or (directory / "order").exists():
                continue
            self._own(directory)
            durable.put(directory / "begun", b"{}")
            if run.result is not None:
                durable.put(directory / "result", msgspec.json.encode(run.result))
            durable.put(directory / "order", b"{}")


def _result(directory: Path) -> Result | None:
    try:
        result = msgspec.json.decode((directory / "result").read_bytes(), type=Result)
    except PermissionError:
        raise
    except (OSError, msgspec.DecodeError):
        return None
    if result.ended > monotonic():  # of a life of the machine before this one
        return msgspec.structs.replace(result, ended=0.0)
    return result


def _deadline(directory: Path) -> float | None:
    """When its runner should have ended it, on the machine's monotonic clock."""
    try:
        said = msgspec.json.decode((directory / "begun").read_bytes(), type=dict[str, float])
    except (OSError, msgspec.DecodeError):
        return None
    return said.get("deadline")


def _end_orphans(directory: Path, room: Path) -> bool:
    """Kill the process group of a command whose runner was killed, since nothing watches it any
    more. Returns whether any of its processes were still alive."""
    try:
        pid, born, boot = (directory / "command").read_text().split()
        if boot != BOOT.read_text().strip():  # then it is somebody else's number
            return False
        members = processes.of_group(int(pid))
    except (OSError, ValueError, AttributeError):
        return False
    leader = next((one for one in members if one.pid == int(pid)), None)
    if leader is None:  # the PID may have been reused, so check the environment too
        members = [one for one in members if one.has("FOREWARN_STATE", str(room))]
    elif leader.born != born:
        return False
    alive = [one for one in members if one.alive]
    for one in alive:
        with contextlib.suppress(OSError):
            os.kill(one.pid, signal.SIGKILL)
    return bool(alive)
