"""A pytest plugin for tools/run-tests and tools/portable-tests: test files in several processes.

With --processes=N all tests are collected once, and N processes are forked from the one that has
collected them. Each takes the next file whenever it needs one, and sends back what became of its
tests. A file stays whole, so that what its tests share is made once.

xdist does the same with processes that collect everything again: 16 s of processor time each.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections import deque
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

PROCESS = "PYTEST_PROCESS"  # in the environment: the number of this process
GRACE = 20.0  # s for interrupted processes to end what their tests have started

# Messages of a process, with what follows them.
NEXT = "next"  # it wants the next file: the answer is a list of places in session.items
START = "start"  # a place in session.items: it begins with this test
REPORT = "report"  # a report, in the form in which pytest sends reports
ERROR = "error"  # a traceback: something other than a test has failed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("processes").addoption(
        "--processes", type=int, default=1, metavar="N", help="Run N test files at the same time."
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--processes") > 1 and hasattr(os, "fork"):
        config.pluginmanager.register(Processes(config.getoption("--processes")))


class Process:
    """A forked process, seen from the one that has collected the tests."""

    def __init__(self, number: int, session: pytest.Session) -> None:
        self.number = number
        self.places: deque[int] = deque()  # of tests that it was given and has not begun
        self.current: int | None = None  # the place of the test that it runs
        self.connection, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self.connection.close()
            _run_files(session, number, theirs)
        theirs.close()
        # What a test has started may hold the other end of the connection open.
        self.ended = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else -1

    def end(self) -> str:
        """Wait until it has ended, and return how."""
        _, status = os.waitpid(self.pid, 0)
        self.connection.close()
        if self.ended >= 0:
            os.close(self.ended)
        code = os.waitstatus_to_exitcode(status)
        return f"exit status {code}" if code >= 0 else signal.Signals(-code).name


class Processes:
    """Replaces pytest's loop over all tests."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._running: dict[Any, Process] = {}  # by connection and by pidfd
        self._files: deque[list[int]] = deque()  # places of the tests of files that nobody has yet

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None  # pytest's own loop says what there is to say
        files: dict[Any, list[int]] = {}
        for place, item in enumerate(session.items):
            files.setdefault(item.path, []).append(place)
        self._files.extend(files.values())
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no process is left
        try:
            factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
            factory.getbasetemp()  # made once, for all processes
            for number in range(min(self._count, len(files))):
                self._start(number, session)
            while self._running:
                for ready in wait(list(self._running)):
                    if ready in self._running:
                        self._listen(self._running[ready], session)
        except BaseException:
            self._stop()
            raise
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _start(self, number: int, session: pytest.Session) -> None:
        process = Process(number, session)
        self._running[process.connection] = process
        if process.ended >= 0:
            self._running[process.ended] = process

    def _listen(self, process: Process, session: pytest.Session) -> None:
        """Take all messages of a process, and notice if it has ended."""
        connection = process.connection
        has_ended = process.ended >= 0 and bool(wait([process.ended], 0))
        with contextlib.suppress(EOFError, ConnectionResetError):
            while connection.poll():
                self._take(process, connection.recv(), session)
            if not has_ended:
                return
        del self._running[connection]
        self._running.pop(process.ended, None)
        self._reap(process, session)

    def _take(self, process: Process, message: tuple[str, Any], session: pytest.Session) -> None:
        hook = session.config.hook
        match message:
            case (str(kind), _) if kind == NEXT:
                stopping = session.shouldfail or session.shouldstop
                places = self._files.popleft() if self._files and not stopping else []
                process.places.extend(places)
                with contextlib.suppress(BrokenPipeError):
                    process.connection.send(places)
            case (str(kind), int(place)) if kind == START:
                process.places.remove(place)
                process.current = place
                item = session.items[place]
                hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            case (str(kind), data) if kind == REPORT:
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
                if report.when == "teardown":
                    process.current = None
            case (_, str(text)):
                raise RuntimeError(f"a process that runs tests has failed:\n{text}")

    def _reap(self, process: Process, session: pytest.Session) -> None:
        """Report a test whose process has died, and have another one go on with its file."""
        how = process.end()
        if process.current is not None:
            item = session.items[process.current]
            report = pytest.TestReport(
                nodeid=item.nodeid,
                location=item.location,
                keywords={},
                outcome="failed",
                longrepr=f"the process that ran this test ended with {how}",
                when="call",
            )
            session.config.hook.pytest_runtest_logreport(report=report)
        elif how != "exit status 0":
            raise RuntimeError(f"a process that runs tests ended with {how} between two tests")
        if process.places:
            self._files.appendleft(list(process.places))
            self._start(process.number, session)

    def _stop(self) -> None:
        """Interrupt all processes, and wait until they have ended what they had started."""
        processes = set(self._running.values())
        for process in processes:
            os.kill(process.pid, signal.SIGINT)
        late = threading.Timer(GRACE, self._kill, [[process.pid for process in processes]])
        late.start()
        for process in processes:
            process.end()
        late.cancel()

    @staticmethod
    def _kill(pids: list[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Sender:
    """In a forked process: runs a test as pytest does, and sends the reports instead of them being
    logged."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            item.session.testsfailed += report.failed  # as if it had been logged
            data = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
            self._connection.send((REPORT, data))
        return True


def _run_files(session: pytest.Session, number: int, connection: Connection) -> NoReturn:
    """Run files for as long as there are any, and end this process."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ[PROCESS] = str(number)
        config = session.config
        # A directory of its own: a test looks through all that there are for the next free name.
        factory = config._tmp_path_factory  # type: ignore[attr-defined]
        directory = factory.getbasetemp() / str(number)
        directory.mkdir(exist_ok=True)
        factory._basetemp = directory
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # into files that all processes share
        capture.start_global_capturing()
        capture.suspend_global_capture()
        config.pluginmanager.register(Sender(connection))
        _run(session, connection)
        status = 0
    except (KeyboardInterrupt, EOFError, BrokenPipeError):  # the other process stops, or is gone
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(BaseException):
            session._setupstate.teardown_exact(None)
    except BaseException:
        with contextlib.suppress(OSError):
            connection.send((ERROR, traceback.format_exc()))
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
        os._exit(status)


def _run(session: pytest.Session, connection: Connection) -> None:
    def receive_file() -> list[int]:
        connection.send((NEXT, None))
        return list(connection.recv())

    places = receive_file()
    while places:
        following: list[int] = []
        for place, next_place in zip(places, [*places[1:], None], strict=True):
            # Known before the last test ends: what belongs to the whole session is kept for it.
            if next_place is None:
                following = receive_file()
                next_place = following[0] if following else None
            next_item = None if next_place is None else session.items[next_place]
            connection.send((START, place))
            item = session.items[place]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
        places = following
