"""Approving, and agreeing with the other machines before that. Each question to the endpoint is an
errand: it takes its time, and is asked again if it came to nothing."""

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
from forewarn.agent.telemetry.log import Tell
from forewarn.agent.telemetry.troubles import OngoingTroubles
from forewarn.client import NotApproved
from forewarn.support.guard import Tasks

ASK_PATIENCE = 10.0  # seconds for one question; it is asked again after a pause


class Approver:
    def __init__(
        self,
        client: Client,
        book: OpenCases,
        shared: Path | None,
        tell: Tell,
        troubles: OngoingTroubles,
        *,
        tasks: Tasks,
        done: Callable[[str], None],
        dry: bool,
    ) -> None:
        self._client = client
        self._book = book
        self._tell = tell
        self._troubles = troubles
        self._dry = dry
        self._tasks = tasks
        self._coordination = Coordination(client, shared, ASK_PATIENCE)
        self._errands = RetriedCalls(tasks, done)
        self._done = done
        self._would: set[str] = set()  # cases that a dry run would have approved
        self.all_ready: dict[str, datetime] = {}  # by case

    def next(self) -> float | None:
        """When there is something to ask again, by guard time."""
        return self._errands.next()

    def due(self) -> set[str]:
        """Return the cases that have something to ask again now."""
        return self._errands.due()

    def do(self, step: steps.Approve | steps.SayReady | steps.AskReady) -> None:
        case = self._book[step.case]
        if self._dry and not isinstance(step, steps.AskReady):
            self._pretend(case, step)
            return
        match step:
            case steps.Approve():
                self._errands.run((case.id, "approve"), lambda: self._approve(case))
            case steps.SayReady():
                self._errands.run((case.id, "ready"), lambda: self._say_ready(case))
            case steps.AskReady():
                self._errands.run((case.id, "ask"), lambda: self._ask_ready(case))

    def forget(self, case: Case) -> None:
        self.all_ready.pop(case.id, None)
        self._errands.forget(case.id)
        self._would.discard(case.id)
        if not self._dry:
            self._tasks.start(self._coordination.forget(case), f"forget {case.id}")

    def _pretend(self, case: Case, step: steps.Approve | steps.SayReady) -> None:
        """Nobody has approved, so how the event ends is not to go by that: it is only said once."""
        facts = {"event": case.event.id, "type": case.event.type}
        if isinstance(step, steps.SayReady):
            self._tell("would say ready", **facts)
            self._change(case, ready=self._client.now())
            self._done(case.id)
        elif case.id not in self._would:
            self._would.add(case.id)
            self._tell("would approve", **facts)

    async def _approve(self, case: Case) -> None:
        facts = {"event": case.event.id, "type": case.event.type}
        if case.approving is None:  # should we die now, it may be over when somebody looks
            self._change(case, approving=self._client.now())
        try:
            await self._client.approve(case.event, patience=ASK_PATIENCE)
        except Exception as error:
            self._tell("not approved", **facts, why=str(error))
            if isinstance(error, NotApproved) and case.approving is None:  # nor was one before it
                self._change(case, approving=None)
            raise
        self._change(case, approved=self._client.now())
        self._tell("approved", **facts)

    async def _say_ready(self, case: Case) -> None:
        try:
            await self._coordination.say_ready(case, self._client.now())
        except Exception as error:
            self._troubles.begin("ready", str(error))
            raise
        self._troubles.end("ready")
        self._change(case, ready=self._client.now())
        self._tell("ready", event=case.event.id, type=case.event.type)

    async def _ask_ready(self, case: Case) -> None:
        """Once a second, until all are."""
        try:
            waiting = await self._coordination.waiting(case)
        except Exception as error:
            self._troubles.begin("ready", str(error))
            raise
        self._troubles.end("ready")
        if set(waiting) - ({case.machine} if self._dry else set()):
            self._errands.later((case.id, "ask"))
            if case.mine and case.machine in waiting and not self._dry:
                self._change(case, ready=None)  # what was said is forgotten there: once more
            return
        self.all_ready[case.id] = self._client.now()
        self._tell("all ready", event=case.event.id, turn=plan.turn_of(case))

    def _change(self, case: Case, **facts: datetime | None) -> None:
        try:
            self._book.change(case.id, **facts)
        except OSError as error:  # then it is asked, and answered, once more
            self._troubles.begin("cases", str(error))
            raise
