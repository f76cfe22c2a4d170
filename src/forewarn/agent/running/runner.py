"""Runs one command once, as a program of its own: `python -I -S runner.py DIRECTORY`.

It outlives the agent that started it, enforces the command's time limit, and writes its result. It
imports nothing of ours, so that it starts quickly and stays the same program whatever is upgraded
meanwhile. The files of a run are described in `agent/state/runs.py`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time  # noqa: TID251 - a program of its own, without support/guard.py
from typing import Any

GRACE = 2.0  # seconds between SIGTERM and SIGKILL, both within the limit
GRACE_SHARE = 0.25  # of the limit at most, if that is short
LEAST_LEFT = 1.0  # seconds; with less left until NotBefore a command is not started
STOP_CHECK = 0.25  # seconds between two checks whether it is to be stopped
MAX_OUTPUT = 64 * 1024  # bytes in one file of output; the one before it is kept, too
RESULT_ROOM = 4_096  # bytes reserved on disk for the result before a command is started
RESULT_ATTEMPTS = 30  # attempts to write a result; with their pauses, 25 minutes
RESULT_PAUSE = 1.0  # seconds before the second attempt, doubled each time after that
MAX_RESULT_PAUSE = 60.0
RECORD_LEVELS = 4  # directory levels of a record within the state: cases, CASE, runs, RUN
DRAIN = 1.0  # seconds for what is left in the pipe, if other processes still hold it

WINDOWS = os.name == "nt"


def main(directory: str) -> None:
    def at(name: str) -> str:
        return os.path.join(directory, name)  # noqa: PTH118 - pathlib takes a third of the start

    def has_begun() -> bool:
        return os.path.exists(at("begun")) or os.path.exists(at("result"))  # noqa: PTH110

    if has_begun():
        return
    lock = os.open(at("lock"), os.O_RDWR | os.O_CREAT, 0o600)
    _lock(lock)  # kept until this process ends; no command inherits it
    if has_begun():  # another runner has been here
        return
    with open(at("order"), "rb") as file:  # noqa: PTH123
        text = file.read()
    order = json.loads(text)
    began = time.monotonic()
    limit = float(order["timeout"])
    if order["until"] is not None:
        left = order["until"] - began
        if left < LEAST_LEFT:
            _write(directory, "result", {"outcome": "no-time", "ended": began})
            return
        limit = min(limit, left)
    _reserve(at(".result.new"))
    begun = {"runner": os.getpid(), "at": time.time(), "deadline": began + limit}
    _write(directory, "begun", begun)
    record = {"order": text, "begun": json.dumps(begun).encode()}
    result = _run(directory, order, limit, began, record)
    ended = time.monotonic()
    result |= {"ended": ended, "seconds": round(ended - began, 3)}
    _report(directory, result, record)


def _report(directory: str, result: dict[str, Any], record: dict[str, bytes]) -> None:
    """Write the result. As long as this process lives, the command is not run again."""
    for attempt in range(RESULT_ATTEMPTS):
        if attempt:
            time.sleep(min(MAX_RESULT_PAUSE, RESULT_PAUSE * 2 ** (attempt - 1)))
        _restore(directory, record)
        with contextlib.suppress(OSError):
            _write(directory, "result", result)
            return


def _run(
    directory: str, order: dict[str, Any], limit: float, began: float, record: dict[str, bytes]
) -> dict[str, Any]:
    stop_requested = threading.Event()
    if not WINDOWS:
        signal.signal(signal.SIGTERM, lambda *_: stop_requested.set())
    grace = min(GRACE, limit * GRACE_SHARE)
    term_at = began + limit - grace
    left = max(0.0, round(limit - grace, 3))
    environment = {**os.environ, **order["environment"], "FOREWARN_SECONDS_LEFT": str(int(left))}
    stdin = json.dumps({**order["stdin"], "seconds_left": left}, separators=(",", ":"))
    try:
        process = subprocess.Popen(
            order["argv"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=order["directory"],
            start_new_session=not WINDOWS,
            # In the child, before it becomes the command. Until then it shares the lock, so the
            # command never runs without either the lock being held or its process recorded.
            preexec_fn=None if WINDOWS else lambda: _record_process(directory),  # no threads yet
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    except subprocess.SubprocessError:
        return {"outcome": "not-started", "message": "its process ID could not be recorded"}
    except (OSError, ValueError) as error:
        return {"outcome": "not-started", "message": str(error)}
    record["command"] = _identify(process.pid)
    ended = threading.Event()
    reader = threading.Thread(target=_read_output, args=(directory, process), daemon=True)
    for thread in (
        reader,
        threading.Thread(target=_write_stdin, args=(process, stdin.encode()), daemon=True),
        threading.Thread(target=_wait, args=(process, ended), daemon=True),
    ):
        thread.start()
    outcome = _end(directory, process, ended, stop_requested, term_at, began + limit, record)
    reader.join(DRAIN)
    return {"outcome": outcome, "code": process.returncode}


def _end(
    directory: str,
    process: subprocess.Popen[bytes],
    ended: threading.Event,
    stop_requested: threading.Event,
    term_at: float,
    kill_at: float,
    record: dict[str, bytes],
) -> str:
    """Wait until it has ended: by itself, because its time was up, or because it is stopped."""
    stop = os.path.join(directory, "stop")  # noqa: PTH118
    while not ended.wait(max(0.0, min(STOP_CHECK, term_at - time.monotonic()))):
        stopped = stop_requested.is_set() or os.path.exists(stop)  # noqa: PTH110
        if not stopped and time.monotonic() < term_at:
            _restore(directory, record)
            continue
        grace = kill_at - term_at
        _signal(process, force=False)
        ended.wait(grace)
        _signal(process, force=True)  # also what is left of its group
        ended.wait()
        return "stopped" if stopped else "timed-out"
    return "ended"


def _wait(process: subprocess.Popen[bytes], ended: threading.Event) -> None:
    process.wait()
    ended.set()


def _signal(process: subprocess.Popen[bytes], *, force: bool) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError, OSError):
        if sys.platform == "win32":
            if force:
                process.kill()
            else:
                process.send_signal(signal.CTRL_BREAK_EVENT)
        else:
            os.killpg(process.pid, signal.SIGKILL if force else signal.SIGTERM)


def _write_stdin(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Write standard input, which a command need not read."""
    with contextlib.suppress(OSError):
        assert process.stdin
        process.stdin.write(data + b"\n")
        process.stdin.close()


def _read_output(directory: str, process: subprocess.Popen[bytes]) -> None:
    """Copy both output streams to a file, which replaces `output.before` when it is full."""
    path = os.path.join(directory, "output")  # noqa: PTH118
    assert process.stdout
    source = process.stdout.fileno()
    try:
        target, size = _open_output(path), 0
        while chunk := os.read(source, 65_536):
            if size + len(chunk) > MAX_OUTPUT and size:
                os.close(target)
                os.replace(path, path + ".before")  # noqa: PTH105
                target, size = _open_output(path), 0
            os.write(target, chunk)
            size += len(chunk)
        os.close(target)
    except OSError:  # a full disk is no reason to fail, but the command must not block
        with contextlib.suppress(OSError):
            while os.read(source, 65_536):
                pass


def _open_output(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)


def _record_process(directory: str) -> None:
    """Record the process of the command, in case its runner is killed."""
    if identity := _identify(os.getpid()):
        path = os.path.join(directory, "command")  # noqa: PTH118
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(file, identity)
        os.close(file)


def _identify(pid: int) -> bytes:
    """Return its PID, start time and the machine's boot ID; empty where these are not available."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:  # noqa: PTH123
            started = file.read().rpartition(")")[2].split()[19]
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
            boot = file.read().strip()
        return f"{pid} {started} {boot}".encode()
    return b""


def _restore(directory: str, record: dict[str, bytes]) -> None:
    """Write the record of this run again if the command, or anything else, has removed it."""
    begun = os.path.join(directory, "begun")  # noqa: PTH118
    if os.path.exists(begun):  # noqa: PTH110
        return
    with contextlib.suppress(OSError):
        _repair(directory, RECORD_LEVELS)
        if os.path.exists(begun):  # noqa: PTH110
            return
        lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT, 0o600)  # noqa: PTH118
        if _lock(lock, wait=False):  # keeps the new lock as well as the old one
            for name, content in record.items():
                _put(directory, name, content)


def _repair(directory: str, levels: int) -> None:
    """Make sure that it is a directory that we can use, as `durable.repair_directory` does."""
    if levels > 1:
        _repair(os.path.dirname(directory), levels - 1)  # noqa: PTH120
    if os.path.islink(directory) or os.path.isfile(directory):  # noqa: PTH113, PTH114
        os.unlink(directory)  # noqa: PTH108
    os.makedirs(directory, 0o700, exist_ok=True)  # noqa: PTH103
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        os.chmod(directory, 0o700)  # noqa: PTH101


def _reserve(path: str) -> None:
    """Reserve space on disk, so that the result can be written even when the disk is full."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        if os.write(file, b" " * RESULT_ROOM) < RESULT_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file)
    finally:
        os.close(file)


def _lock(lock: int, *, wait: bool = True) -> bool:
    """Take the lock, waiting for an agent that holds it for an instant; another runner that had it
    has written `begun`."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(lock, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if wait:
            raise
        os.close(lock)
        return False
    return True


def _write(directory: str, name: str, value: dict[str, Any]) -> None:
    _put(directory, name, json.dumps(value).encode())


def _put(directory: str, name: str, content: bytes) -> None:
    """Replace a file atomically and durably."""
    draft = os.path.join(directory, f".{name}.new")  # noqa: PTH118
    file = os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600)  # keeps the space that was reserved
    try:
        rest = content
        while rest:  # a disk that is nearly full takes a part of it
            rest = rest[os.write(file, rest) :]
        os.ftruncate(file, len(content))
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(draft, os.path.join(directory, name))  # noqa: PTH105, PTH118
    if not WINDOWS:
        folder = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


if __name__ == "__main__":
    main(sys.argv[1])
