"""`forewarn`, or a script or program that uses it, as a process of its own, without paying for the
imports each time.

Most of what a command costs is reading Python. A fork server has read it all and forks whenever a
test wants a process; the child is as much a process as any other: it has its own files,
environment, directory and signals, lives in the network of the thread that wanted it, and dies of
kill -9. Who its parent is, and what /proc says it was started with, is not as in real life: a test
that is about these starts it by `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

FOREWARN = (sys.executable, "-m", "forewarn")
SCRIPT = (sys.executable, "-c")
NO_SITE = "-S"  # a program may be started with it to save time, which is saved here anyway
UNBUFFERED = "PYTHONUNBUFFERED"  # a variable
USUAL = {"stdin", "stdout", "stderr", "text", "env", "cwd", "sockets"}
ROOM = "/" * 500  # among the words of the fork server, for those of what comes from it
MAX_REQUEST = 128 * 1024  # bytes: the words, the environment
NAMESPACES = ("net", "uts")  # those that a thread may have of its own; see netns.py
MAX_SOCKETS = 8  # that one process is handed over
MAX_FDS = 4 + MAX_SOCKETS + len(NAMESPACES)


class Forked(subprocess.Popen[Any]):
    """`subprocess.Popen`, for words that begin with FOREWARN or SCRIPT, or are a program's.

    `sockets` are handed over as a service manager does: file descriptors with their names."""

    _ended: int  # a pipe that says how it ended

    def __init__(
        self, words: Sequence[str | Path], *, sockets: Mapping[int, str] | None = None, **more: Any
    ) -> None:
        self._sockets = sockets or {}
        super().__init__(words, **more)

    def _execute_child(
        self,
        args: Sequence[str],
        executable: str | None,
        preexec_fn: Any,
        close_fds: bool,
        pass_fds: Any,
        cwd: Any,
        env: dict[str, str] | None,
        startupinfo: Any,
        creationflags: Any,
        shell: bool,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        *more: Any,
    ) -> None:
        words = [str(word) for word in args]
        *unusual, new_session, process_group = more[1:]
        usual = (*unusual, process_group) == (None, None, None, -1, -1)
        if not usual or executable or preexec_fn or pass_fds or shell:
            raise ValueError(f"start this by subprocess: {words}")
        request = {
            **_code(words),
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
            "new_session": new_session,
            "sockets": list(self._sockets.values()),
        }
        given = [p2cread, c2pwrite, errwrite]
        streams = [own if fd == -1 else fd for own, fd in enumerate(given)]
        self._ended, reported = os.pipe()
        with contextlib.ExitStack() as closing:
            closing.callback(os.close, reported)
            for home in _namespaces():
                streams.append(os.open(home, os.O_RDONLY))
                closing.callback(os.close, streams[-1])
            fds = [*streams[:3], reported, *self._sockets, *streams[3:]]
            self.pid = fork_server().child(request, fds)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """As `waitpid` would have it, which only the fork server may ask."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._ended, selectors.EVENT_READ)
            if not waiting.select(0 if wait_flags & os.WNOHANG else None):
                return 0, 0
        output = os.read(self._ended, 16)
        os.close(self._ended)
        assert output, "the fork server has died"
        return self.pid, int(output)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def _code(words: Sequence[str]) -> dict[str, Any]:
    """What is to be executed with which arguments."""
    if tuple(words[:3]) == FOREWARN:
        return {"words": words[3:]}
    if tuple(words[:2]) == SCRIPT:
        return {"script": words[2], "words": words[3:]}
    assert is_program(words), words
    file, *arguments = words[2:] if words[1] == NO_SITE else words[1:]
    return {"file": file, "words": arguments}


def is_program(words: Sequence[str]) -> bool:
    """Return whether these words start a file with the Python of the tests."""
    python, *rest = words
    file = next((word for word in rest if word != NO_SITE), "")
    return python == sys.executable and file.endswith(".py")


def _namespaces() -> list[str]:
    """Those of this thread, if it does not live where its process does."""
    here = [f"/proc/thread-self/ns/{kind}" for kind in NAMESPACES]
    return here if any(map(_elsewhere, here)) else []


def _elsewhere(namespace: str) -> bool:
    return not Path(namespace).samefile(namespace.replace("thread-self", "self"))


def start(words: Sequence[str], **more: Any) -> subprocess.Popen[Any]:
    """A process, forked if nothing about it is unusual."""
    forked = tuple(words[:3]) == FOREWARN and more.keys() <= USUAL
    return (Forked if forked else subprocess.Popen)(words, **more)


def run(
    words: Sequence[str | Path], *, timeout: float | None = None, check: bool = False, **more: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` of a `forewarn` command or a script, as text."""
    from helpers.waiting import LIMIT  # here, since the fork server runs this file as a program

    if more.pop("capture_output", False):
        more |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Forked(words, **{"text": True, **more}) as process:
        try:
            out, err = process.communicate(timeout=timeout or LIMIT)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(list(words), process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def run_script(
    script: str, *arguments: str | Path, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python code in another process, with its output captured."""
    return run([*SCRIPT, script, *arguments], capture_output=True, **more)


class ForkServer:
    """The other side of the fork server, in the process that runs the tests."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, __file__, str(theirs.fileno()), ROOM]
        env = {name: value for name, value in os.environ.items() if name != UNBUFFERED}
        self._process = subprocess.Popen(
            argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=env
        )
        theirs.close()
        self._one_at_a_time = threading.Lock()

    def child(self, request: dict[str, Any], fds: list[int]) -> int:
        packed = json.dumps(request).encode()
        assert len(packed) <= MAX_REQUEST
        with self._one_at_a_time:
            socket.send_fds(self._line, [packed], fds)
            return int(self._line.recv(16))

    def close(self) -> None:
        self._line.close()
        self._process.wait()


@functools.cache
def fork_server() -> ForkServer:
    assert not _namespaces(), "a fork server ends with the network that it was made in"
    made = ForkServer()
    atexit.register(made.close)
    return made


def _keep(line: socket.socket) -> NoReturn:
    """Fork for whoever asks, and tell how children have ended, until nobody can ask any more."""
    ends: dict[int, int] = {}
    wakes, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as waiting:
        waiting.register(line, selectors.EVENT_READ, "asked")
        waiting.register(wakes, selectors.EVENT_READ, "ended")
        while True:
            for key, _ in waiting.select():
                if key.data == "ended":
                    os.read(wakes, 4_096)
                    _reap(ends)
                    continue
                packed, fds, _, _ = socket.recv_fds(line, MAX_REQUEST, MAX_FDS)
                if not packed:
                    os._exit(0)
                child = os.fork()
                if not child:
                    _become(json.loads(packed), fds)
                ends[child] = fds.pop(3)
                for fd in fds:
                    os.close(fd)
                line.send(str(child).encode())


def _reap(ends: dict[int, int]) -> None:
    while ends:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        end = ends.pop(child)
        with contextlib.suppress(ConnectionError):  # whoever wanted to know is gone
            os.write(end, str(status).encode())
        os.close(end)


def _become(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """What `python -m forewarn`, or `python -c`, has become by the time it has read everything."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    names = request.get("sockets", [])
    streams, sockets, namespaces = fds[:3], fds[4 : 4 + len(names)], fds[4 + len(names) :]
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    for namespace in namespaces:
        if libc.setns(namespace, 0):
            os._exit(ctypes.get_errno())
    kept = [fcntl.fcntl(fd, fcntl.F_DUPFD, MAX_FDS) for fd in [*streams, *sockets]]
    for own, fd in enumerate(kept):
        os.dup2(fd, own)
    os.closerange(len(kept), max(int(fd.name) for fd in Path("/proc/self/fd").iterdir()) + 1)
    os.environ.clear()
    os.environ.update(request["env"])
    if names:
        output = {
            "LISTEN_PID": os.getpid(),
            "LISTEN_FDS": len(names),
            "LISTEN_FDNAMES": ":".join(names),
        }
        os.environ.update({name: str(value) for name, value in output.items()})
    os.chdir(request["cwd"])
    unbuffered = bool(os.environ.get(UNBUFFERED))
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through=unbuffered)  # type: ignore[union-attr]
    sys.stderr.reconfigure(write_through=unbuffered)  # type: ignore[union-attr]
    if request.get("new_session"):
        os.setsid()
    _end_after(lambda: _execute(request))


def _execute(request: dict[str, Any]) -> None:
    if (script := request.get("script")) is not None:
        sys.argv = ["-c", *request["words"]]
        sys.path[0] = ""
        exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})
    elif (file := request.get("file")) is not None:
        sys.argv = [file, *request["words"]]
        sys.path[0] = str(Path(file).parent)
        program = sys.modules["__main__"] = types.ModuleType("__main__")
        program.__file__ = file
        exec(compile(Path(file).read_bytes(), file, "exec"), program.__dict__)
    else:
        sys.argv = ["forewarn", *request["words"]]
        from forewarn.cli import main

        main()


def _end_after(execute: Callable[[], None]) -> NoReturn:
    """End as Python does, but free nothing: to write to everything that was read takes ten times
    as long as all the rest."""
    status = 0
    try:
        execute()
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        status = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        sys.exit(status)  # Python has more to say about it
    os._exit(status & 0xFF)


def _read_everything() -> None:
    import asyncio  # noqa: F401
    import http.client  # noqa: F401

    import alembic.runtime.environment
    import alembic.script  # noqa: F401
    import typer.main
    import uvloop  # noqa: F401

    import forewarn.cli.app
    import forewarn.cli.commands.dev_config
    import forewarn.client
    import forewarn.control.app
    import forewarn.control.server.acceptor
    import forewarn.control.server.protocol
    import forewarn.metadata.http.protocol
    import forewarn.node.daemon.run
    import forewarn.store.postgres.engine
    import forewarn.store.sqlite.engine
    import forewarn.store.sqlite.restore

    sys.path[0] = str(Path(__file__).parent.parent)
    forewarn.control.app.handlers()
    typer.main.get_command = functools.cache(typer.main.get_command)
    commands: Any = typer.main.get_command(forewarn.cli.app.app)
    assert all(commands.commands.values())  # each is made when it is looked at


if __name__ == "__main__":
    _read_everything()
    gc.collect()
    gc.freeze()  # which the children then need not look at
    _keep(socket.socket(fileno=int(sys.argv[1])))
