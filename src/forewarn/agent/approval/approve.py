"""Approving events and, before that, coordinating with the other machines of an event. Each call of
the endpoint runs in a task of its own, and is retried if it fails."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from forewarn.agent.approval.coordinate import Coordination
from forewarn.agent.approval.retrying import RetriedCalls
from forewarn.agent.open_cases import OpenCases
from forewarn.agent.planning import plan, steps
from forewarn.agent.ports import Client
from forewarn.agent.state.cases import Case
from forewarn.agent.telemetry.log import Log, OngoingProblems
from forewarn.client import ApprovalRefusedError
from forewarn.support.guard import Tasks

CALL_TIMEOUT = 10.0  # seconds for one call; it is retried after a pause


class Approver:
    def __init__(
        self,
        client: Client,
        cases: OpenCases,
        shared: Path | None,
        log: Log,
        problems: OngoingProblems,
        *,
        tasks: Tasks,
        on_done: Callable[[str], None],
        dry_run: bool,
    ) -> None:
        """`on_done` is called with the ID of a case for which a call has ended."""
        self._client = client
        self._cases = cases
        self._log = log
        self._problems = problems
        self._dry_run = dry_run
        self._tasks = tasks
        self._coordination = Coordination(client, shared, CALL_TIMEOUT)
        self._calls = RetriedCalls(tasks, on_done)
        self._on_done = on_done
        self._would_approve: set[str] = set()  # cases for which a dry run has logged it
        self.all_ready: dict[str, datetime] = {}  # by case: when all machines were ready

    def next_retry(self) -> float | None:
        """Return when there is something to retry, in guard time."""
        return self._calls.next_retry()

    def due(self) -> set[str]:
        """Return the cases that have something to retry now."""
        return self._calls.due()

    def take(self, step: steps.ApprovalStep) -> None:
        case = self._cases[step.case]
        if self._dry_run and not isinstance(step, steps.CheckReadiness):
            self._log_only(case, step)
            return
        match step:
            case steps.Approve():
                self._calls.run((case.id, "approve"), lambda: self._approve(case))
            case steps.ReportReady():
                self._calls.run((case.id, "report ready"), lambda: self._report_ready(case))
            case steps.CheckReadiness():
                self._calls.run((case.id, "readiness"), lambda: self._check_readiness(case))

    def forget(self, case: Case) -> None:
        """Forget a case that is being closed."""
        self.all_ready.pop(case.id, None)
        self._calls.forget(case.id)
        self._would_approve.discard(case.id)
        if not self._dry_run:
            self._tasks.start(self._coordination.forget(case), f"forget {case.id}")

    def _log_only(self, case: Case, step: steps.Approve | steps.ReportReady) -> None:
        """Log what a dry run would do. The approval is not recorded in the case, since it must not
        influence whether the event counts as finished."""
        facts = {"event": case.event.id, "type": case.event.type}
        if isinstance(step, steps.ReportReady):
            self._log("would report ready", **facts)
            self._change(case, ready=self._client.now())
            self._on_done(case.id)
        elif case.id not in self._would_approve:
            self._would_approve.add(case.id)
            self._log("would approve", **facts)

    async def _approve(self, case: Case) -> None:
        facts = {"event": case.event.id, "type": case.event.type}
        if case.approving is None:  # recorded first: the event may be over after a crash
            self._change(case, approving=self._client.now())
        try:
            await self._client.approve(case.event.id, timeout=CALL_TIMEOUT)
        except Exception as error:
            self._log("approval failed", **facts, why=str(error))
            if (
                isinstance(error, ApprovalRefusedError) and case.approving is None
            ):  # nor may an earlier attempt have succeeded
                self._change(case, approving=None)
            raise
        self._change(case, approved=self._client.now())
        self._log("approved", **facts)

    async def _report_ready(self, case: Case) -> None:
        try:
            await self._coordination.report_ready(case, self._client.now())
        except Exception as error:
            self._problems.begin("ready", str(error))
            raise
        self._problems.end("ready")
        self._change(case, ready=self._client.now())
        self._log("ready", event=case.event.id, type=case.event.type)

    async def _check_readiness(self, case: Case) -> None:
        """Check once a second, until all machines are ready."""
        try:
            waiting = await self._coordination.waiting(case)
        except Exception as error:
            self._problems.begin("ready", str(error))
            raise
        self._problems.end("ready")
        if set(waiting) - ({case.machine} if self._dry_run else set()):
            self._calls.repeat((case.id, "readiness"))
            if case.mine and case.machine in waiting and not self._dry_run:
                self._change(case, ready=None)  # the endpoint has lost our report: report again
            return
        self.all_ready[case.id] = self._client.now()
        self._log("all ready", event=case.event.id, turn=plan.turn_of(case))

    def _change(self, case: Case, **fields: datetime | None) -> None:
        try:
            self._cases.change(case.id, **fields)
        except OSError as error:  # then the call is made again
            self._problems.begin("cases", str(error))
            raise
