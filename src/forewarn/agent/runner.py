"""One command, run once, by a program of its own: `python -I -S runner.py DIRECTORY`.

It outlives the agent that started it, keeps the command's time limit, and writes down what became
of it. Stands alone: nothing of ours is imported, so that it starts in no time and is the same
program whatever is upgraded meanwhile. The files of a run are told in `runs.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time  # noqa: TID251 - a program of its own, which cannot ask guard.py
from typing import Any

GRACE = 2.0  # seconds between SIGTERM and SIGKILL, both within the limit
GRACE_SHARE = 0.25  # of a short limit, at most so much of it
LEAST_LEFT = 1.0  # seconds; with less to go until NotBefore a command is not begun
STOP_LOOK = 0.25  # seconds between two looks whether it is to be stopped
MAX_OUTPUT = 64 * 1024  # bytes in one file of output; the one before it is kept, too
RESULT_PAUSE = 1.0  # seconds until a result that could not be written is written again
DRAIN = 1.0  # seconds for what is left in the pipe, if others still hold it

WINDOWS = os.name == "nt"


def main(directory: str) -> None:
    def at(name: str) -> str:
        return os.path.join(directory, name)  # noqa: PTH118 - pathlib takes a third of the start

    def known() -> bool:
        return os.path.exists(at("begun")) or os.path.exists(at("result"))  # noqa: PTH110

    if known():
        return
    lock = os.open(at("lock"), os.O_RDWR | os.O_CREAT, 0o600)
    _take(lock)  # kept until this process ends; no command inherits it
    if known():  # another runner has been here
        return
    with open(at("order"), encoding="utf-8") as file:  # noqa: PTH123
        order = json.load(file)
    began = time.monotonic()
    limit = float(order["timeout"])
    if order["until"] is not None:
        left = order["until"] - began
        if left < LEAST_LEFT:
            _write(directory, "result", {"outcome": "no-time", "ended": began})
            return
        limit = min(limit, left)
    _write(directory, "begun", {"runner": os.getpid(), "at": time.time()})
    result = _run(directory, order, limit, began)
    ended = time.monotonic()
    result |= {"ended": ended, "seconds": round(ended - began, 3)}
    while True:  # for as long as it is held nobody runs it again
        try:
            _write(directory, "result", result)
            return
        except FileNotFoundError:  # the whole directory is gone, and with it whoever wanted to know
            return
        except OSError:
            time.sleep(RESULT_PAUSE)


def _run(directory: str, order: dict[str, Any], limit: float, began: float) -> dict[str, Any]:
    asked = threading.Event()
    if not WINDOWS:
        signal.signal(signal.SIGTERM, lambda *_: asked.set())
    grace = min(GRACE, limit * GRACE_SHARE)
    polite = began + limit - grace
    left = max(0.0, round(limit - grace, 3))
    environment = {**os.environ, **order["environment"], "FOREWARN_SECONDS_LEFT": str(int(left))}
    said = json.dumps({**order["stdin"], "seconds_left": left}, separators=(",", ":"))
    try:
        process = subprocess.Popen(
            order["argv"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=order["directory"],
            start_new_session=not WINDOWS,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {"outcome": "not-started", "said": str(error)}
    _name(directory, process.pid)
    ended = threading.Event()
    reader = threading.Thread(target=_read, args=(directory, process), daemon=True)
    for thread in (
        reader,
        threading.Thread(target=_say, args=(process, said.encode()), daemon=True),
        threading.Thread(target=_await, args=(process, ended), daemon=True),
    ):
        thread.start()
    outcome = _end(directory, process, ended, asked, polite, began + limit)
    reader.join(DRAIN)
    return {"outcome": outcome, "code": process.returncode}


def _end(
    directory: str,
    process: subprocess.Popen[bytes],
    ended: threading.Event,
    asked: threading.Event,
    polite: float,
    last: float,
) -> str:
    """Wait until it has ended: by itself, because its time was up, or because it is stopped."""
    stop = os.path.join(directory, "stop")  # noqa: PTH118
    while not ended.wait(max(0.0, min(STOP_LOOK, polite - time.monotonic()))):
        stopped = asked.is_set() or os.path.exists(stop)  # noqa: PTH110
        if not stopped and time.monotonic() < polite:
            continue
        grace = last - polite
        _signal(process, gently=True)
        ended.wait(grace)
        _signal(process, gently=False)  # also what is left of its group
        ended.wait()
        return "stopped" if stopped else "timed-out"
    return "ended"


def _await(process: subprocess.Popen[bytes], ended: threading.Event) -> None:
    process.wait()
    ended.set()


def _signal(process: subprocess.Popen[bytes], *, gently: bool) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError, OSError):
        if sys.platform == "win32":
            if gently:
                process.send_signal(signal.CTRL_BREAK_EVENT)
            else:
                process.kill()
        else:
            os.killpg(process.pid, signal.SIGTERM if gently else signal.SIGKILL)


def _say(process: subprocess.Popen[bytes], said: bytes) -> None:
    """A command need not read what it is told."""
    with contextlib.suppress(OSError):
        assert process.stdin
        process.stdin.write(said + b"\n")
        process.stdin.close()


def _read(directory: str, process: subprocess.Popen[bytes]) -> None:
    """Both its streams, into a file that is set aside when it is full, in place of the last."""
    path = os.path.join(directory, "output")  # noqa: PTH118
    assert process.stdout
    source = process.stdout.fileno()
    try:
        target, size = _output(path), 0
        while chunk := os.read(source, 65_536):
            if size + len(chunk) > MAX_OUTPUT and size:
                os.close(target)
                os.replace(path, path + ".before")  # noqa: PTH105
                target, size = _output(path), 0
            os.write(target, chunk)
            size += len(chunk)
        os.close(target)
    except OSError:  # a full disk is no reason to fail: but whoever writes must not be blocked
        with contextlib.suppress(OSError):
            while os.read(source, 65_536):
                pass


def _output(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)


def _name(directory: str, pid: int) -> None:
    """Who it is, so that it can be found if this runner is killed without it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:  # noqa: PTH123
            born = file.read().rpartition(")")[2].split()[19]
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
            boot = file.read().strip()
        with open(os.path.join(directory, "command"), "w") as file:  # noqa: PTH118, PTH123
            file.write(f"{pid} {born} {boot}")


def _take(lock: int) -> None:
    """Waits for whoever looks at it for a moment. Another runner has written that it has begun."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(lock, msvcrt.LK_LOCK, 1)
    else:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)


def _write(directory: str, name: str, value: dict[str, Any]) -> None:
    """Whole or not at all, and on the disk when this returns."""
    draft = os.path.join(directory, f".{name}.new")  # noqa: PTH118
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        rest = json.dumps(value).encode()
        while rest:  # a disk that is nearly full takes a part of it
            rest = rest[os.write(file, rest) :]
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
