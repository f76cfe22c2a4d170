"""The main program of the control process and of each worker, started by the supervisor.

Reports to the supervisor on standard output (the messages are in `node.processes.child`), and
writes everything else to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from forewarn.metadata.workers.remote_upstream import NotWelcome
from forewarn.node import Address, CannotListen, Config, Node
from forewarn.node.daemon.reload import Reloader, Report
from forewarn.node.daemon.run import COLLECT, configure_log, fit
from forewarn.node.daemon.run import run as run_node
from forewarn.node.daemon.service_manager import health_problem, status
from forewarn.node.listening.socket_activation import adopt
from forewarn.node.processes.child import ALIVE, FOR_GOOD, READY, REREAD, SETTINGS, UNWELL
from forewarn.node.processes.worker import Worker
from forewarn.node.settings import LoadedSettings, Settings, SettingsError
from forewarn.node.settings import config as checked
from forewarn.node.settings import load as load_settings
from forewarn.store import StoreFailed, StoreUnusable
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.text import visible

SIGN_OF_LIFE = 2.0  # seconds between two signs of life for the supervisor

log = logger("forewarn")


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor says."""

    parent: int  # the supervisor
    metadata: list[str]  # where guests ask, HOST:PORT
    control: str
    number: int | None = None  # which of the workers; None: control
    metadata_fds: tuple[int, ...] = ()  # a worker's sockets, one for each address
    control_fd: int | None = None
    settings: dict[str, Any]
    config: str | None = None  # the file that they come from, to read it anew
    flags: dict[str, Any] = {}
    migrate: bool = False
    speed: float = 1.0  # for tests


def main() -> None:
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=Spec)
    _die_with(spec.parent)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    import uvloop

    try:
        said = LoadedSettings(msgspec.convert(spec.settings, Settings))
        made = _made(spec, checked(said, with_fleet=spec.number is None))
        uvloop.run(_control(spec, said, made) if spec.number is None else _worker(spec, said, made))
    except SettingsError as error:
        _fail(*error.problems)
    except (CannotListen, NotWelcome, StoreFailed, StoreUnusable) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'cannot start'}: {error.strerror}")


def _fail(*problems: str) -> NoReturn:
    for problem in problems:
        sys.stderr.write(f"forewarn: {visible(problem)}\n")
    sys.exit(1)


def _made(spec: Spec, config: Config) -> Config:
    """The sockets are the supervisor's, and so is where they are."""
    first, *more = map(Address.parse, spec.metadata)
    return msgspec.structs.replace(
        config,
        metadata=first,
        more_metadata=tuple(more),
        control=Address.parse(spec.control),
        control_fd=spec.control_fd,
        migrate=spec.migrate,
        rules=msgspec.structs.replace(config.rules, speed=spec.speed),
    )


async def _control(spec: Spec, said: LoadedSettings, config: Config) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)  # not yet
    tasks = guard.Tasks()
    life = ProcessLife()
    tasks.start(life.show(), "signs of life")

    def welcome(node: Node) -> None:
        life.wrong, life.status = lambda: health_problem(node), lambda: status(node)
        life.show_once()  # how things stand is known before it is ready

    def after(in_force: LoadedSettings, report: Report) -> None:
        life.show_once()  # how things stand now, which is told whoever wanted it
        _settle(in_force, report)
        _say(REREAD, report.refused)

    load = partial(_read_anew, spec, with_fleet=True)
    await run_node(config, welcome, lambda *_: contextlib.nullcontext(), said, load, after)


async def _worker(spec: Spec, said: LoadedSettings, config: Config) -> None:
    assert spec.number is not None
    configure_log(said.settings)
    listeners = [adopt(fd) for fd in spec.metadata_fds]
    worker = Worker(fit(config), spec.number, listeners)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_for_good() -> None:
        worker.outlived = False
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(FOR_GOOD, stop_for_good)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # what it reads at the start is new
    tasks = guard.Tasks()
    tasks.start(ProcessLife().show(), "signs of life")
    answering = tasks.start(_answer_guests(worker, spec, said), "answering guests")
    stopped = tasks.start(stop.wait(), "waiting to be stopped")
    await asyncio.wait([answering, stopped], return_when=asyncio.FIRST_COMPLETED)
    if answering.done():
        await answering  # it says why
    await tasks.end()


async def _answer_guests(worker: Worker, spec: Spec, said: LoadedSettings) -> None:
    """For ever; from when it knows whom to answer."""
    async with worker:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        load = partial(_read_anew, spec, with_fleet=False)
        reloading = Reloader(
            said, load, configure_log, fit, after=lambda report: _say(REREAD, report.refused)
        )
        endpoint, fronted = worker.endpoint, worker.front is not None
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGHUP, lambda: reloading.worker(endpoint, fronted)
        )
        _say(READY, {})
        await worker.following


def _read_anew(spec: Spec, *, with_fleet: bool) -> tuple[LoadedSettings, Config]:
    path = Path(spec.config) if spec.config else None
    new, made = load_settings(path, os.environ, spec.flags, with_fleet=with_fleet)
    return new, _made(spec, made)


def _settle(in_force: LoadedSettings, report: Report) -> None:
    """Whoever is started later goes by what is in force, and has to be able to. (The fleet is not
    looked at: it was read a moment ago.)"""
    if report.refused:
        return
    try:
        checked(in_force, with_fleet=False)
    except SettingsError as error:
        log.warning(
            "a process that is started later goes by the settings before these",
            problems=error.problems,
        )
    else:
        _say(SETTINGS, in_force.settings)


class ProcessLife:
    """Signs of it for the supervisor, from the loop that serves, while nothing is wrong."""

    def __init__(self) -> None:
        self.wrong: Callable[[], str] = lambda: ""  # what is; nothing, if all is well
        self.status: Callable[[], str] = lambda: ""  # how things stand, for people

    async def show(self) -> None:
        while True:
            self.show_once()
            await guard.pause(SIGN_OF_LIFE)

    def show_once(self) -> None:
        wrong = self.wrong()
        _say(UNWELL if wrong else ALIVE, wrong or self.status())


def _say(what: str, said: object) -> None:
    with contextlib.suppress(OSError):  # the supervisor is gone, and we are about to be
        os.write(1, what.encode() + b" " + msgspec.json.encode(said) + b"\n")


def _die_with(parent: int) -> None:
    """A supervisor that is killed leaves nobody behind who holds its sockets.

    A thread waits for it, and nothing else: the loop may be busy, or not run yet. (The kernel
    could do it alone, but only ctypes could ask it to, and that is not to be had in a service
    which may not make memory executable.)"""
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        sys.exit(1)
    if os.getppid() != parent:  # it was quicker, and the number is somebody else's
        sys.exit(1)

    def wait() -> None:
        waiting = select.poll()
        waiting.register(watched, select.POLLIN)
        waiting.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="supervisor", daemon=True).start()


if __name__ == "__main__":
    main()
