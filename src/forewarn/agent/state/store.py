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

from forewarn.agent.config.model import Stage
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Outcome, Result, Run, RunOrder, RunState, parse_id
from forewarn.agent.system import durable, processes
from forewarn.support.files.replace import replace
from forewarn.support.guard import monotonic
from forewarn.support.system import boot_id

KEPT_CASES = 50  # closed cases that are kept for `agent status`
KEPT_FOR = timedelta(days=7)
MAX_SHOWN = 4_096  # bytes of a command's output that are shown, the last ones

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


class StateTaken(Exception):
    """Another agent uses this directory."""


class StateUnusable(Exception):
    """The state cannot be stored there; the message says why and what to do."""


class StateStore:
    def __init__(self, state: Path) -> None:
        """Lock the directory for as long as this process lives."""
        self.state = state
        self._cases = state / "cases"
        self._hooks = state / "hooks"
        try:
            durable.make_directory(self._cases)
            problem = durable.permission_problem(self._cases) or durable.permission_problem(state)
            if problem:
                raise StateUnusable(problem)
            self._lock = durable.try_lock_with_directory(state / "lock")
        except OSError as error:
            raise StateUnusable(f"{error.filename or state}: {error.strerror}") from error
        if self._lock is None:
            raise StateTaken(
                f"another agent is already using {state}; every agent needs a state directory of"
                " its own ([agent] state)"
            )
        self._last_number = 0  # of a run
        self._saved: dict[str, Case] = {}  # cases as they were last written
        self._runs: dict[str, dict[str, Run]] = {}  # by case: all that were ordered
        self._locks: dict[Path, int] = {}  # of active runs, open but not held
        self._to_verify: set[str] = set()  # cases whose record a command may have damaged
        self.unreadable: list[str] = []

    def release(self) -> None:
        for file in self._lock or ():
            os.close(file)
        self._lock = None
        while self._locks:
            os.close(self._locks.popitem()[1])

    # Cases

    def load_cases(self) -> list[Case]:
        """Load all cases, and remove what is left of directories that were never completed."""
        cases = []
        for directory in sorted(self._cases.iterdir()):
            try:
                self._repair(directory)
                case = msgspec.json.decode((directory / "case").read_bytes(), type=Case)
            except FileNotFoundError:
                durable.remove_tree(directory)
                continue
            except (OSError, msgspec.DecodeError) as error:
                self.unreadable.append(f"{directory / 'case'}: {error}")
                continue
            cases.append(case)
            self._saved[case.id] = case
            for run in self._load_runs(case.id).values():
                self._last_number = max(self._last_number, run.number)
        self._remove_orphaned_hook_directories()
        return cases

    def _remove_orphaned_hook_directories(self) -> None:
        """Remove the hooks' directories of cases that no longer exist."""
        with contextlib.suppress(OSError):
            for directory in self._hooks.iterdir():
                if not (self._cases / directory.name).exists():
                    durable.remove_tree(directory)

    def new_case_id(self, event_id: str) -> str:
        """Return an ID that was not used before, also for an event that is listed again."""
        safe = event_id if _SAFE.fullmatch(event_id) else sha256(event_id.encode()).hexdigest()[:32]
        number = 1
        while (self._cases / f"{safe}.{number}").exists():
            number += 1
        return f"{safe}.{number}"

    def save(self, case: Case) -> None:
        self._repair(self._cases / case.id)
        replace(self._cases / case.id / "case", msgspec.json.encode(case))
        self._saved[case.id] = case

    def close(self, case: Case, given_up: Collection[str] = ()) -> None:
        """Save a case that is closed and remove the directories of its hooks, except those whose
        undo was `given_up`: they may be needed to undo it by hand."""
        self.save(case)
        for hook in case.hooks:
            if hook.name not in given_up:
                durable.remove_tree(self.hook_directory(case.id, hook.name))
        with contextlib.suppress(OSError):  # one that is not empty stays
            (self._hooks / case.id).rmdir()

    def prune(self, closed: Iterable[Case], now: datetime) -> list[Case]:
        """Remove and return the closed cases that are too old, or more than are kept."""
        newest = sorted(closed, key=lambda case: case.closed or now, reverse=True)
        old = [case for case in newest if case.closed and now - case.closed > KEPT_FOR]
        dropped = [*newest[KEPT_CASES:], *(case for case in old if case in newest[:KEPT_CASES])]
        for case in dropped:
            durable.remove(self._cases / case.id / "case")
            durable.remove_tree(self._cases / case.id)
            durable.remove_tree(self._hooks / case.id)
            self._saved.pop(case.id, None)
            self._runs.pop(case.id, None)
        return dropped

    # Runs

    def runs(self, case_id: str) -> tuple[Run, ...]:
        """Return the runs of a case in the state that their files show now."""
        runs = self._runs[case_id] if case_id in self._runs else self._load_runs(case_id)
        for run in [run for run in runs.values() if run.active]:
            runs[run.id] = current = self._refresh(case_id, run)
            if not current.active:
                self._close_lock(self.run_directory(case_id, current))
                self._to_verify.add(case_id)
        if case_id in self._to_verify:
            self._verify(case_id)
            self._to_verify.discard(case_id)
        return tuple(sorted(runs.values(), key=lambda run: run.number))

    def order(self, case_id: str, hook: str, stage: Stage, attempt: int, order: RunOrder) -> Run:
        """Record a new run. A runner may be started for it once this returns."""
        self._last_number += 1
        run = Run(
            number=self._last_number,
            hook=hook,
            stage=stage,
            attempt=attempt,
            state=RunState.ORDERED,
        )
        self.rewrite_order(case_id, run, order)
        self._runs.setdefault(case_id, {})[run.id] = run
        self._open_lock(self.run_directory(case_id, run))  # before the command can remove it
        return run

    def rewrite_order(self, case_id: str, run: Run, order: RunOrder) -> None:
        """Write the order of a run that has not begun."""
        self._repair(self.hook_directory(case_id, run.hook))
        directory = self.run_directory(case_id, run)
        self._repair(directory)
        replace(directory / "order", msgspec.json.encode(order))

    def cancel(self, case_id: str, run: Run) -> bool:
        """Keep runners from beginning a run. Returns False if one has begun it already."""
        directory = self.run_directory(case_id, run)
        self._repair(directory)
        lock = durable.try_lock(directory / "lock")
        if lock is None:
            return False
        try:
            if (directory / "begun").exists():
                return False
            if not (directory / "result").exists():
                result = Result(outcome=Outcome.CANCELLED, ended=monotonic())
                replace(directory / "result", msgspec.json.encode(result))
            return True
        finally:
            os.close(lock)

    def request_stop(self, case_id: str, run: Run) -> None:
        """Have the run's runner end the command as if its time was up."""
        directory = self.run_directory(case_id, run)
        self._repair(directory)
        if not (directory / "stop").exists():
            replace(directory / "stop", b"")

    def runner_pid(self, case_id: str, run: Run) -> int | None:
        """Return the process ID of the run's runner, if it is known."""
        try:
            begun = msgspec.json.decode((self.run_directory(case_id, run) / "begun").read_bytes())
            return int(begun["runner"])
        except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError):
            return None

    def output(self, case_id: str, run: Run) -> str:
        """Return the end of the command's output."""
        directory = self.run_directory(case_id, run)
        output = b""
        for name in ("output", "output.before"):
            if len(output) < MAX_SHOWN:
                with contextlib.suppress(OSError):
                    output = durable.read_tail(directory / name, MAX_SHOWN) + output
        return output[-MAX_SHOWN:].decode("utf-8", "replace").strip()

    def is_logged(self, case_id: str, run: Run) -> bool:
        """Whether the run's outcome has been logged, perhaps by an earlier agent process."""
        return (self.run_directory(case_id, run) / "logged").exists()

    def mark_logged(self, case_id: str, run: Run) -> None:
        """If the mark is lost, the outcome is logged twice, which is better than never."""
        with contextlib.suppress(OSError):
            (self.run_directory(case_id, run) / "logged").touch(durable.PRIVATE)

    def run_directory(self, case_id: str, run: Run) -> Path:
        return self._cases / case_id / "runs" / run.id

    def case_of(self, run_directory: Path) -> str:
        """Return the ID of the case that a run's directory belongs to."""
        return run_directory.parent.parent.name

    def hook_directory(self, case_id: str, hook: str) -> Path:
        """Return the directory that a hook has for itself, from prepare to undo."""
        return self._hooks / case_id / hook

    def _repair(self, directory: Path) -> None:
        """Make it a usable directory again, whatever a hook has done to it."""
        durable.repair_directory(directory, self.state)

    def _load_runs(self, case_id: str) -> dict[str, Run]:
        """Load the runs that an earlier agent process has ordered."""
        runs = self._runs[case_id] = {}
        try:
            self._repair(self._cases / case_id / "runs")
            names = [path.name for path in (self._cases / case_id / "runs").iterdir()]
        except FileNotFoundError:
            return runs
        for name in names:
            if (run := parse_id(name)) is None:
                continue
            directory = self.run_directory(case_id, run)
            self._repair(directory)
            if (directory / "order").exists():  # else the agent died before it was ordered
                runs[run.id] = run
        return runs

    def _refresh(self, case_id: str, run: Run) -> Run:
        """Return the run in the state that its files show."""
        directory = self.run_directory(case_id, run)
        for last in (False, True):
            try:
                current = self._read_state(directory, run)
                if current.state != RunState.LOST:
                    return current
                orphaned = _kill_orphans(directory, self.hook_directory(case_id, run.hook))
                return self._running(directory, run) if orphaned else current
            except PermissionError:
                if last:
                    raise
                self._repair(directory)
        raise AssertionError

    def _read_state(self, directory: Path, run: Run) -> Run:
        if (result := _read_result(directory)) is not None:
            return msgspec.structs.replace(run, state=RunState.DONE, result=result)
        ordered, begun = (directory / "order").exists(), (directory / "begun").exists()
        if run.state == RunState.ORDERED and ordered and not begun:
            return run
        if durable.is_open_file_locked(self._open_lock(directory)):
            return self._running(directory, run)
        if (result := _read_result(directory)) is not None:  # it has ended just now
            return msgspec.structs.replace(run, state=RunState.DONE, result=result)
        return msgspec.structs.replace(run, state=RunState.LOST)

    def _running(self, directory: Path, run: Run) -> Run:
        if run.state == RunState.RUNNING and run.deadline is not None:
            return run
        deadline = _read_deadline(directory)
        return msgspec.structs.replace(run, state=RunState.RUNNING, deadline=deadline)

    def _open_lock(self, directory: Path) -> int:
        """Return the open lock file of a run. It is opened only once, so that it can be tried even
        if the file is removed in the meantime."""
        if directory not in self._locks:
            self._repair(directory)
            self._locks[directory] = durable.open_lock(directory / "lock")
        return self._locks[directory]

    def _close_lock(self, directory: Path) -> None:
        if (lock := self._locks.pop(directory, None)) is not None:
            os.close(lock)

    def _verify(self, case_id: str) -> None:
        """Write records again that a command has removed: after a restart they are all that the
        agent knows."""
        if case_id in self._saved and not (self._cases / case_id / "case").exists():
            self.save(self._saved[case_id])
        for run in self._runs[case_id].values():
            directory = self.run_directory(case_id, run)
            if run.active or (directory / "order").exists():
                continue
            self._repair(directory)
            replace(directory / "begun", b"{}")
            if run.result is not None:
                replace(directory / "result", msgspec.json.encode(run.result))
            replace(directory / "order", b"{}")


def _read_result(directory: Path) -> Result | None:
    try:
        result = msgspec.json.decode((directory / "result").read_bytes(), type=Result)
    except PermissionError:
        raise
    except (OSError, msgspec.DecodeError):
        return None
    if result.ended > monotonic():  # by the clock of an earlier boot
        return msgspec.structs.replace(result, ended=0.0)
    return result


def _read_deadline(directory: Path) -> float | None:
    """Return when the runner should have ended the command, on the machine's monotonic clock."""
    try:
        begun = msgspec.json.decode((directory / "begun").read_bytes(), type=dict[str, float])
    except (OSError, msgspec.DecodeError):
        return None
    return begun.get("deadline")


def _kill_orphans(run_directory: Path, hook_directory: Path) -> bool:
    """Kill the process group of a command whose runner was killed, since nothing watches it any
    more. Returns whether any of its processes were still alive."""
    try:
        pid, started, boot = (run_directory / "command").read_text().split()
        if boot != boot_id():  # then the PID means another process
            return False
        members = processes.in_group(int(pid))
    except (OSError, ValueError, AttributeError):
        return False
    leader = next((process for process in members if process.pid == int(pid)), None)
    if leader is None:  # the PID may have been reused, so check the environment too
        variable = "FOREWARN_STATE", str(hook_directory)
        members = [process for process in members if process.has_variable(*variable)]
    elif leader.started != started:
        return False
    alive = [process for process in members if process.alive]
    for process in alive:
        with contextlib.suppress(OSError):
            os.kill(process.pid, signal.SIGKILL)
    return bool(alive)
