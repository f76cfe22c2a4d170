"""A plugin of pytest: `--processes N` runs tests file by file in several processes, which are
forked once everything is collected.

Every process has read all tests by then, so that none of them has to do so again. In all else they
are as those of pytest-xdist: each has temporary files and session fixtures of its own, a file is
run by one of them from its beginning to its end, and if one dies, the test that it was at has
failed and another process goes on.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import signal
import threading
import traceback
from collections import defaultdict, deque
from collections.abc import Iterable
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest

WORKER = "TEST_WORKER"  # a variable that says in which of the processes a test is run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--processes", type=int, default=0, help="run the tests file by file in this many processes"
    )


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    number = session.config.getoption("--processes")
    if not number or session.testsfailed or session.config.option.collectonly:
        return None  # as pytest does by itself
    run_files(session, number)
    return True


class Worker:
    """One of the processes, as seen by the one that started it."""

    def __init__(self, session: pytest.Session, number: int, others: Iterable[Connection]) -> None:
        self.number = number
        self.at = 0  # the test that it runs, or has run last
        self.rest: deque[int] = deque()  # of the file
        self.line, theirs = Pipe()
        self.pid = os.fork()
        if not self.pid:
            for line in (self.line, *others):
                line.close()  # so that it is noticed if this process ends
            _work(session, number, theirs)
        theirs.close()

    def give(self, places: list[int]) -> None:
        self.rest = deque(places)
        self.line.send(places)

    def end(self) -> int:
        self.line.close()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def run_files(session: pytest.Session, number: int) -> None:
    """Run all collected tests in this many processes."""
    assert threading.active_count() == 1, "a thread does not survive a fork"
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    by_file: defaultdict[Any, list[int]] = defaultdict(list)
    for place, item in enumerate(session.items):
        by_file[item.path].append(place)
    files = deque(by_file.values())
    workers: dict[Connection, Worker] = {}

    def start(number: int) -> None:
        worker = Worker(session, number, workers)
        workers[worker.line] = worker

    try:
        for each in range(min(number, len(files))):
            start(each)
        while workers:
            for line in wait(list(workers)):
                worker = workers[line]  # type: ignore[index]
                try:
                    message = worker.line.recv()
                except (EOFError, ConnectionError):
                    message = None
                if message is not None and message[0] != "done":
                    _hear(session, worker, message, files)
                    continue
                del workers[worker.line]
                if code := worker.end():
                    _fail(session, session.items[worker.at], f"exit code {code}")
                    if worker.rest:
                        files.appendleft(list(worker.rest))
                    if files and not _is_over(session):
                        start(worker.number)
    finally:
        for worker in workers.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
            worker.end()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def _hear(session: pytest.Session, worker: Worker, message: Any, files: deque[list[int]]) -> None:
    hook = session.config.hook
    match message:
        case ("next", _):
            worker.give(files.popleft() if files and not _is_over(session) else [])
        case ("begins", place):
            worker.at = place
            worker.rest.popleft()
            item = session.items[place]
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        case ("ends", (place, reports)):
            for data in reports:
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
            item = session.items[place]
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        case ("failed", (place, text)):
            _fail(session, session.items[place], text)


def _is_over(session: pytest.Session) -> bool:
    return bool(session.shouldfail or session.shouldstop)


def _fail(session: pytest.Session, item: pytest.Item, why: str) -> None:
    """Report that a process has failed while it ran this test, or after it."""
    report = pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=f"the process that runs this test: {why}",
        when="teardown",
    )
    session.config.hook.pytest_runtest_logreport(report=report)


class _Reports:
    """The reports of a test, for the process that shows them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reports: list[Any] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        self._reports.append(data)

    def take(self) -> list[Any]:
        reports, self._reports = self._reports, []
        return reports


def _work(session: pytest.Session, number: int, line: Connection) -> NoReturn:
    """Run the files that are given, until there are no more."""
    status = 1
    try:
        _separate(session.config, number)
        _run_given_files(session, line)
        status = 0
    except (KeyboardInterrupt, pytest.exit.Exception, EOFError, ConnectionError):
        pass  # whoever listens knows, or is gone
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        os._exit(status)


def _separate(config: pytest.Config, number: int) -> None:
    """Have nothing in common with the other processes that could disturb them."""
    atexit._clear()  # that is for the first process to do
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    random.seed()
    os.environ[WORKER] = str(number)
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory._basetemp / f"worker-{number}"
    factory._basetemp.mkdir(mode=0o700, exist_ok=True)
    factory._exit_stack = contextlib.ExitStack()
    config.pluginmanager.unregister(name="terminalreporter")


def _run_given_files(session: pytest.Session, line: Connection) -> None:
    reports = _Reports(session.config)
    session.config.pluginmanager.register(reports)
    place = 0
    while True:
        line.send(("next", None))
        places: list[int] = line.recv()
        # After a file only the fixtures of the session are kept.
        following: list[Any] = [*(session.items[place] for place in places[1:]), session]
        for place, after in zip(places, following, strict=False):
            line.send(("begins", place))
            session.config.hook.pytest_runtest_protocol(item=session.items[place], nextitem=after)
            line.send(("ends", (place, reports.take())))
            if _is_over(session):
                break
        if not places or _is_over(session):
            break
    try:
        session._setupstate.teardown_exact(None)
    except Exception:
        line.send(("failed", (place, traceback.format_exc())))
    line.send(("done", None))
