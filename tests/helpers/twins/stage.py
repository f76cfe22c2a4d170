"""A service inside a test with one client that runs beside it, and what the test finds out.

A finding is the name of a rule of the verdict, or an assertion that a test makes about the worker.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from types import TracebackType

from forewarn.testing import Event, Impact, Service
from helpers.twins import clients
from helpers.waiting import LIMIT, until

FIRST_REQUESTS = 2  # of a client: its name, and the document
GIVEN_UP = 0.5  # seconds after which a client that is meant to stop polling is not waited for
PATIENT = 20.0  # seconds for which every other client is waited for
LONGEST = "12h"  # of the service's time: no event of a trial lasts so long

LOST_JOB = "a job is lost"
WORKS_MEANWHILE = "the worker works during the event"
NOT_APPROVED = "the event is not approved"
IDLE = "the worker stays idle"
STOPPED_FOR_NOTHING = "the worker stops for nothing"
APPROVED_FOREIGN = "another machine's event is approved"


class Running:
    """One client, as a thread or as a process of its own, and its log."""

    def __init__(self, name: str, endpoint: str, every: float) -> None:
        self.log: list[str] = []
        self.death = ""  # the exception that ended it
        self._stop = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        if name == clients.SHELL:
            self._process = subprocess.Popen(
                clients.command(name, every=every),
                env={"FOREWARN_METADATA": endpoint, "PATH": "/usr/bin:/bin"},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            work = self._read_output
        else:
            client = clients.make(name, endpoint, self.log.append, every)

            def work() -> None:
                client.run(self._stop)

        self._thread = threading.Thread(target=self._run, args=(work,), name=name)
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.death = f"{type(error).__name__}: {error}"

    def _read_output(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.log.append(line.rstrip("\n"))

    def stop(self) -> None:
        self._stop.set()
        if self._process is not None:
            self._process.terminate()
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        if self._process is not None:
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process.wait(LIMIT)

    @property
    def job(self) -> str:
        """The number of the job in hand, or nothing."""
        jobs = [line for line in self.log if not line.startswith("approved")]
        return jobs[-1].removeprefix("taken ") if jobs and jobs[-1].startswith("taken ") else ""

    @property
    def returned_jobs(self) -> int:
        return sum(line.startswith("returned") for line in self.log)


class Stage:
    """A scale set of spot machines with the client on web_1, while a trial is made."""

    def __init__(
        self,
        client: str,
        *,
        stops: bool = False,
        refused: bool = False,
        persists: bool = False,
        every: float = clients.EVERY,
    ) -> None:
        self._refused = refused
        self.persists = persists  # it does not poll less often after 429, however busy the machine
        self.patience = GIVEN_UP if stops else PATIENT
        self._client, self._every = client, every
        self._goes_away = False
        self._returned = 0  # jobs, before the current event
        self.findings: set[str] = set()

    def __enter__(self) -> Stage:
        self.service = Service()
        self.service.__enter__()
        try:
            self.web = self.service.scale_set("web", 12, spot=True, terminate_notice="5m")
            self.machine = self.web[1]
            self.running = Running(self._client, self.machine.url, self._every)
            if self._refused:
                until(lambda: self.requests >= FIRST_REQUESTS)
            else:
                self.machine.wait_for_poll(LIMIT)
        except BaseException:
            self.service.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.running.stop()
        finally:
            self.service.__exit__(kind, error, traceback)

    def start_again(self) -> None:
        self.running.stop()
        self.running = Running(self._client, self.machine.url, self._every)
        self._returned = 0

    @property
    def requests(self) -> int:
        conducts = self.service.verdict(timeout=0).conducts
        return sum(sum(conduct.statuses.values()) for conduct in conducts)

    def let_poll(self, times: int) -> None:
        """Wait until the client has sent so many more requests, if it still sends any."""
        end = self.requests + times
        until(lambda: self.requests >= end or bool(self.running.death))

    def play(self, duration: str) -> None:
        self.service.clock.play(duration, timeout=self.patience)

    def play_through(self, event: Event) -> None:
        """Let an event of the client's machine be announced, start and end."""
        clock = self.service.clock
        clock.play(LONGEST, until=lambda: event.status != "Scheduled", timeout=self.patience)
        if self.running.job and not self._goes_away:
            self.findings.add(WORKS_MEANWHILE if self._has_drained() else LOST_JOB)
        if event.approved_by != self.machine.name:
            self.findings.add(NOT_APPROVED)
        clock.play(LONGEST, until=lambda: event.over, timeout=self.patience)
        self.play("1s")
        if self.machine.alive and not self.running.job:
            self.findings.add(IDLE)
        self._returned = self.running.returned_jobs

    def let_go_away(self) -> None:
        """Let the machine really go away when one of its events is carried out."""
        self._goes_away = True
        self.machine.on_impact(self._on_impact)

    def _on_impact(self, impact: Impact) -> str | None:
        """Lose the job that the worker has in hand, and report it, when its machine goes away."""
        if impact.phase == "ends" or impact.type == "Freeze":
            return None
        if not self.running.job:
            return ""
        self.findings.add(LOST_JOB)
        return f"job {self.running.job} is in hand"

    def play_past(self, event: Event) -> None:
        """Let an event come and go that the client need not do anything about."""
        self.service.clock.play(LONGEST, until=lambda: event.over, timeout=self.patience)
        self.play("1s")
        if self._has_drained():
            self.findings.add(STOPPED_FOR_NOTHING)
        if event.approved_by == self.machine.name and self.machine.name not in event.resources:
            self.findings.add(APPROVED_FOREIGN)
        self._returned = self.running.returned_jobs

    def _has_drained(self) -> bool:
        """Return whether the worker has handed back a job since the last event."""
        return self.running.returned_jobs > self._returned

    def result(self) -> set[str]:
        """Return all findings: those of the trial, and the rules that the verdict says are
        broken."""
        return self.findings | {
            item.rule for item in self.service.verdict(timeout=self.patience).complaints
        }

    def report(self) -> str:
        """Return what to read when the findings are not those that were expected."""
        log = ", ".join(self.running.log[-40:])
        return f"{self.running.death}\nlog: {log}\n{self.service.report()}"
