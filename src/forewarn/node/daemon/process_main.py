"""The main program of the control process and of each worker, started by the supervisor.

Reports to the supervisor on standard output (the messages are in `node.processes.child`), and
writes everything else to standard error.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until it serves: what is imported is no garbage, and to look for some takes long

import asyncio
import contextlib
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

from forewarn.metadata.publishing.remote_upstream import NotWelcome
from forewarn.node import Address, CannotListen, Config, Node
from forewarn.node.daemon.reload import Reloader, Report
from forewarn.node.daemon.run import COLLECT, configure_log, fit
from forewarn.node.daemon.run import run as run_node
from forewarn.node.daemon.service_manager import health_problem, status_line
from forewarn.node.listening.socket_activation import adopt
from forewarn.node.processes.child import (
    ALIVE,
    LEASE,
    READY,
    RELOADED,
    SETTINGS,
    STOP_FINALLY,
    UNHEALTHY,
)
from forewarn.node.processes.worker import Worker
from forewarn.node.settings import LoadedSettings, Settings, SettingsError
from forewarn.node.settings import config as make_config
from forewarn.node.settings import load as load_settings
from forewarn.service.engine.otel import TracesUnusable
from forewarn.store import StoreFailed, StoreUnusable
from forewarn.store.port import Leadership
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.text import visible

HEARTBEAT_EVERY = 2.0  # seconds between two reports to the supervisor
LEASE_REPORT_EVERY = 0.1  # seconds between two looks at the lease, which is renewed less often

_sending = threading.Lock()

log = logger("forewarn")


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor passes to a process on its standard input."""

    parent: int  # process id of the supervisor
    metadata: list[str]  # addresses for guests, HOST:PORT
    control: str  # address for operators, HOST:PORT
    number: int | None = None  # of a worker; None: this is the control process
    metadata_fds: tuple[int, ...] = ()  # a worker's sockets, one for each address
    control_fd: int | None = None
    settings: dict[str, Any]
    config: str | None = None  # the settings file, for reloading it
    flags: dict[str, Any] = {}
    migrate: bool = False
    speed: float = 1.0  # for tests


def main() -> None:
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=Spec)
    _exit_with(spec.parent)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    import uvloop

    try:
        loaded = LoadedSettings(msgspec.convert(spec.settings, Settings))
        config = _with_spec(spec, make_config(loaded, with_fleet=spec.number is None))
        run = _run_control if spec.number is None else _run_worker
        uvloop.run(run(spec, loaded, config))
    except SettingsError as error:
        _fail(*error.problems)
    except (CannotListen, NotWelcome, StoreFailed, StoreUnusable, TracesUnusable) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'cannot start'}: {error.strerror}")


def _fail(*problems: str) -> NoReturn:
    for problem in problems:
        sys.stderr.write(f"forewarn: {visible(problem)}\n")
    sys.exit(1)


def _with_spec(spec: Spec, config: Config) -> Config:
    """Return the configuration with what the supervisor decides, such as sockets and addresses."""
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


async def _run_control(spec: Spec, loaded: LoadedSettings, config: Config) -> None:
    # SIGHUP must not end the process before the node is started and handles it.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)
    tasks = guard.Tasks()
    heartbeat = Heartbeat()
    tasks.start(heartbeat.run(), "heartbeat")

    refusal = ""  # of the last reload

    def on_start(node: Node) -> None:
        heartbeat.problem = lambda: health_problem(node)
        heartbeat.status = lambda: status_line(node, refusal)
        heartbeat.send()  # the supervisor needs the status when it reports that all are ready
        if node.store.leadership is not None:
            _report_lease(node.store.leadership)

    def on_reload(in_force: LoadedSettings, report: Report) -> None:
        nonlocal refusal
        refusal = report.refusal
        heartbeat.send()  # so that the status that follows the reload is current
        _report_settings(in_force, report)
        _send(RELOADED, report.refused)

    load = partial(_load_again, spec, with_fleet=True)
    await run_node(config, on_start, lambda *_: contextlib.nullcontext(), loaded, load, on_reload)


async def _run_worker(spec: Spec, loaded: LoadedSettings, config: Config) -> None:
    assert spec.number is not None
    configure_log(loaded.settings)
    listeners = [adopt(fd) for fd in spec.metadata_fds]
    worker = Worker(fit(config), spec.number, listeners)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_finally() -> None:
        worker.outlived = False
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(STOP_FINALLY, stop_finally)
    # Nothing to reload before the worker has started: it has just read its settings.
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    tasks = guard.Tasks()
    tasks.start(Heartbeat().run(), "heartbeat")
    answering = tasks.start(_answer_guests(worker, spec, loaded), "answering guests")
    stopped = tasks.start(stop.wait(), "waiting to be stopped")
    await asyncio.wait([answering, stopped], return_when=asyncio.FIRST_COMPLETED)
    if answering.done():
        await answering  # raises why it has ended
    await tasks.end()


async def _answer_guests(worker: Worker, spec: Spec, loaded: LoadedSettings) -> None:
    """Run the worker until the connection to the control process ends for good."""
    async with worker:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        gc.enable()
        load = partial(_load_again, spec, with_fleet=False)
        reloader = Reloader(
            *(loaded, load, configure_log, fit),
            on_reload=lambda report: _send(RELOADED, report.refused),
        )
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGHUP,
            lambda: reloader.reload_worker(worker.endpoint, worker.front is not None),
        )
        _send(READY, {})
        await worker.following


def _load_again(spec: Spec, *, with_fleet: bool) -> tuple[LoadedSettings, Config]:
    path = Path(spec.config) if spec.config else None
    loaded, config = load_settings(path, os.environ, spec.flags, with_fleet=with_fleet)
    return loaded, _with_spec(spec, config)


def _report_settings(in_force: LoadedSettings, report: Report) -> None:
    """Send the settings in force to the supervisor, for processes that it starts later. (The fleet
    file is not read again: it was read a moment ago.)"""
    if report.refused:
        return
    try:
        make_config(in_force, with_fleet=False)
    except SettingsError as error:
        log.warning(
            "a process that is started later uses the previous settings", problems=error.problems
        )
    else:
        _send(SETTINGS, in_force.settings)


class Heartbeat:
    """Regular reports to the supervisor, sent from the loop that serves: alive, with a status for
    people, or unhealthy, with the problem."""

    def __init__(self) -> None:
        self.problem: Callable[[], str] = lambda: ""  # "" while the process is healthy
        self.status: Callable[[], str] = lambda: ""

    async def run(self) -> None:
        while True:
            self.send()
            await guard.pause(HEARTBEAT_EVERY)

    def send(self) -> None:
        problem = self.problem()
        _send(UNHEALTHY if problem else ALIVE, problem or self.status())


def _report_lease(leadership: Leadership) -> None:
    """Tell the supervisor, whenever it changes, until when this process may decide: it ends what
    acts after that. A thread does, so that it does not depend on the event loop."""

    def report() -> None:
        reported: float | None = None
        while True:
            until = leadership.until if leadership.term else None
            if until != reported:
                _send(LEASE, until)
                reported = until
            pause.wait(LEASE_REPORT_EVERY)

    pause = threading.Event()
    threading.Thread(target=report, name="lease report", daemon=True).start()


def _send(message: str, value: object) -> None:
    # Without a supervisor, this process is about to be killed.
    with contextlib.suppress(OSError), _sending:
        os.write(1, message.encode() + b" " + msgspec.json.encode(value) + b"\n")


def _exit_with(parent: int) -> None:
    """Kill this process when the supervisor ends, so that nothing keeps its sockets.

    A thread waits for that, because the event loop may be busy or not running yet.
    (PR_SET_PDEATHSIG needs ctypes, which does not work where the unit forbids executable
    memory.)"""
    try:
        parent_fd = os.pidfd_open(parent)
    except ProcessLookupError:
        sys.exit(1)
    if os.getppid() != parent:  # it has ended already, and its pid belongs to another process
        sys.exit(1)

    def wait() -> None:
        poll = select.poll()
        poll.register(parent_fd, select.POLLIN)
        poll.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="supervisor", daemon=True).start()


if __name__ == "__main__":
    main()
