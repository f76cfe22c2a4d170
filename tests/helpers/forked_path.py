"""A directory for the PATH whose `forewarn` is forked, not started (see forked_cli.py), for what
somebody types or a program in another language starts.

What is found there is a stub that hands over its words, streams, environment and directory, passes
on the signals that it gets, and ends as the real one ends; if it is killed, so is the real one.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

import msgspec

from helpers.forked_cli import MAX_REQUEST, fork_server

STUB = """\
#!/bin/sh
'''exec' "{python}" -IS "$0" "$@"
'''
import json, os, select, signal, socket, sys

line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect({listener!r})
asked = {{"words": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}
passed_on = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1
signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
socket.send_fds(line, [json.dumps(asked).encode()], [0, 1, 2])
status, pid = None, 0
caught, catches = os.pipe()  # a handler would not run if a signal came just before a read
os.set_blocking(catches, False)
while status is None:
    ready, _, _ = select.select([line, caught], [], [])
    if caught in ready:
        for one in os.read(caught, 64):
            os.kill(pid, one)
        continue
    word, _, number = line.recv(64).decode().rpartition(" ")
    if word:
        pid = int(number)
        signal.set_wakeup_fd(catches)
        for one in passed_on:
            signal.signal(one, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    else:
        status = int(number)
signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
if os.WIFSIGNALED(status):
    signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    os.kill(os.getpid(), os.WTERMSIG(status))
os._exit(os.waitstatus_to_exitcode(status))
"""


@functools.cache
def forked_bin() -> Path:
    """Put it before everything else in the PATH."""
    fork_server()
    where = Path(tempfile.mkdtemp(prefix="forewarn-bin-"))
    atexit.register(shutil.rmtree, where)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(where / "listener"))
    listener.listen()
    threading.Thread(target=_keep, args=(listener,), daemon=True).start()
    stub = where / "bin" / "forewarn"
    stub.parent.mkdir()
    stub.write_text(STUB.format(python=sys.executable, listener=str(where / "listener")))
    stub.chmod(0o755)
    return stub.parent


def _keep(listener: socket.socket) -> None:
    """Have a process forked for each stub that asks, and end it if the stub is gone."""
    real: dict[socket.socket, int] = {}
    with selectors.DefaultSelector() as waiting:
        waiting.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is listener:
                    line, _ = listener.accept()
                    try:
                        real[line] = _forked(line)
                    except ProcessLookupError:  # it has ended already
                        line.close()
                    else:
                        waiting.register(line, selectors.EVENT_READ)
                    continue
                assert isinstance(key.fileobj, socket.socket)
                waiting.unregister(key.fileobj)
                pidfd = real.pop(key.fileobj)
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.close(pidfd)
                key.fileobj.close()


def _forked(stub: socket.socket) -> int:
    """The fork server itself tells the stub how it ended."""
    packed, fds, _, _ = socket.recv_fds(stub, MAX_REQUEST, 3)
    pid = fork_server().child(msgspec.json.decode(packed), [*fds, stub.fileno()])
    for fd in fds:
        os.close(fd)
    pidfd = os.pidfd_open(pid)
    with contextlib.suppress(ConnectionError):  # the stub is gone, which will be noticed
        stub.send(f"child {pid}".encode())
    return pidfd
