"""The agent's loop: looks at the document, reads off the state what is next, and does it.

Everything that lasts is on the desk; whatever is in memory here can be lost at any moment. What
takes time (a command, an answer of the endpoint) is done beside the loop, so that nothing delays
the next look.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from forewarn.agent import ports
from forewarn.agent.approval.approve import Approver
from forewarn.agent.config.model import Config, Hook
from forewarn.agent.open_cases import OpenCases
from forewarn.agent.planning import steps
from forewarn.agent.planning.attempts import standing
from forewarn.agent.planning.planner import Planner
from forewarn.agent.planning.steps import CaseWithRuns, Now
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Run, State
from forewarn.agent.telemetry.log import Tell
from forewarn.agent.telemetry.troubles import OngoingTroubles
from forewarn.client.events import Look
from forewarn.client.identity import Identity
from forewarn.support.guard import Tasks, monotonic, pause

LOOK_WITHIN = 5.0  # seconds between two looks while an event is being handled
ENDPOINT_PATIENCE = 10.0  # seconds that it may be silent before that is told
IDENTITY_EVERY = 600.0  # seconds until it is asked again: a name and labels may become others
IDENTITY_PAUSE = 5.0  # seconds between two tries to learn who we are
STATE_PAUSE = 2.0  # seconds until a state that cannot be written is tried again
BEGUN_WITHIN = 1.0  # seconds until the agent checks whether a runner that it started has begun
START_AGAIN = 1.0  # seconds until a runner that cannot be started is tried again
SWEEP_EVERY = 30.0  # seconds between two checks of all cases that are being handled
LONGEST_REST = 3_600.0  # seconds without anything to do
LEAST_REST = 0.01
MAX_ROUNDS = 100  # of planning at once; each closes, cancels or begins something
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # these affect the whole disk


class Agent:
    def __init__(
        self,
        config: Config,
        client: ports.Client,
        desk: Callable[[Callable[[str], None], Tasks], ports.ExecutorPort],
        tell: Tell,
        *,
        dry: bool = False,
    ) -> None:
        self.config = config
        self.client = client
        self.tell = tell
        self.dry = dry
        self.identity: Identity | None = None
        self.looked: Look | None = None
        self._tasks = Tasks(self._surprised)
        self._kicked = asyncio.Event()
        self._kicked.set()  # what is over already need not wait for a first look
        self._planner = Planner()
        self._touched: dict[str, None] = {}  # cases to refresh, in this order
        self._again: dict[str, float] = {}  # by case: the guard time at which to refresh it again
        self._swept = monotonic()
        self._desk = desk(self._touch, self._tasks)
        self._book = OpenCases(config, self._desk, tell, self._touch)
        self._touched.update(dict.fromkeys(case.id for case in self._book.open))
        self._troubles = OngoingTroubles(tell)
        self._agreeing = Approver(
            client,
            self._book,
            config.shared,
            tell,
            self._troubles,
            tasks=self._tasks,
            done=self._touch,
            dry=dry,
        )
        self._told: dict[str, set[str]] = {}  # by case: runs that are known to have ended
        self._started: dict[str, set[str]] = {}  # by case: runs that were started in this life
        self._overdue: set[tuple[str, str]] = set()  # case and run, of those that were reported
        self._wake: datetime | None = None
        self._rest: float | None = None
        self._broken: BaseException | None = None

    # What others may look at

    @property
    def cases(self) -> tuple[Case, ...]:
        """Those that are being handled, and those that are still remembered."""
        return tuple(self._book)

    def story(self, case: Case) -> CaseWithRuns:
        return self._book.story(case)

    # The loop

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Until it is cancelled. What runs then goes on by itself."""
        try:
            self._tasks.start(self._look(ready), "look")
            self._tasks.start(self._watch_the_endpoint(), "endpoint")
            self._tasks.start(self._stay_known(), "identity")
            while self._broken is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._until_next()):
                        await self._kicked.wait()
                self._kicked.clear()
                self.reconcile()
            raise self._broken
        finally:
            await self._tasks.end()

    async def _look(self, ready: Callable[[], None]) -> None:
        me = await self._know_myself()
        async for look in self.client.looks(within=self._within):
            with self._keeping("cases"):
                self._book.see(look, self.identity or me)
            first, self.looked = self.looked is None, look
            self._kicked.set()
            if first:
                ready()

    async def _watch_the_endpoint(self) -> None:
        """A client bears whatever the endpoint does, so it is told here when that lasts."""
        while True:
            await pause(ENDPOINT_PATIENCE / 2)
            stands = self.client.standing
            lasts = (self.client.now() - stands.since).total_seconds()
            if not stands.trouble:
                self._troubles.end("endpoint")
            elif lasts >= ENDPOINT_PATIENCE:
                self._troubles.begin("endpoint", f"{stands.endpoint or 'none'}: {stands.trouble}")

    async def _know_myself(self) -> Identity:
        while self.identity is None:
            try:
                self.identity = await self.client.identity()
            except Exception as error:
                self._troubles.begin("identity", str(error))
                await pause(IDENTITY_PAUSE)
        self._troubles.end("identity")
        self._tell_who(self.identity)
        return self.identity

    async def _stay_known(self) -> None:
        """Who cannot be asked now is who it was."""
        while True:
            await pause(IDENTITY_EVERY)
            if self.identity is not None:
                with contextlib.suppress(Exception):
                    found = await self.client.identity()
                    if found != self.identity:
                        self.identity = found
                        self._tell_who(found)

    def _tell_who(self, me: Identity) -> None:
        self.tell("machine", name=me.name, tags=dict(me.tags))

    def _within(self) -> float:
        """How soon the next look is wanted at most."""
        most = LOOK_WITHIN if self._book.waits_for_news else LONGEST_REST
        if self._troubles.lasts("cases"):
            most = STATE_PAUSE
        if self._wake is not None:
            most = min(most, max(0.0, (self._wake - self.client.now()).total_seconds()))
        return most

    def _until_next(self) -> float:
        rests = [LONGEST_REST]
        whens = [self._rest, self._agreeing.next(), *self._again.values()]
        if self._book.open:
            whens.append(self._swept + SWEEP_EVERY)
        rests += [at - monotonic() for at in whens if at is not None]
        if self._wake is not None:
            rests.append((self._wake - self.client.now()).total_seconds())
        return max(LEAST_REST, min(rests))

    @contextlib.contextmanager
    def _keeping(self, what: str, case: str | None = None) -> Iterator[None]:
        """A state that cannot be written now may be written later: nothing has been done that is
        not on it."""
        try:
            yield
        except OSError as error:
            self._troubles.begin(what, str(error))
            if case is not None:
                self._again[case] = monotonic() + STATE_PAUSE
                if error.errno not in FULL:  # then others would fare no better
                    self._planner.release(case)
        else:
            self._troubles.end(what)

    def _surprised(self, name: str, error: BaseException) -> None:
        """An errand is run again. Without looks there is no agent."""
        self._troubles.begin(name, f"{type(error).__name__}: {error}")
        if name == "look":
            self._broken = error
        self._kicked.set()

    # What is next

    def _touch(self, case: str) -> None:
        self._touched[case] = None
        self._kicked.set()

    def reconcile(self) -> None:
        for _ in range(MAX_ROUNDS):
            self._gather()
            touched, self._touched = self._touched, {}
            for id in touched:
                with self._keeping(f"runs of case {id}", id):
                    self._refresh(id)
            now = Now(self.client.now(), monotonic())
            plan = self._planner.plan(now, self._agreeing.all_ready, blind=self.looked is None)
            self._wake, self._rest = plan.wake, plan.rest
            for step in plan.steps:
                with self._keeping(f"case {step.case}", step.case):
                    self._do(step)
            if not self._touched:
                return
        self._kicked.set()  # the rest after others have had their turn

    def _gather(self) -> None:
        """Mark the cases whose time has come as touched, and all cases every `SWEEP_EVERY`, in case
        a change of one was missed."""
        now = monotonic()
        self._touched.update(dict.fromkeys(sorted(self._agreeing.due())))
        for id in [id for id, at in self._again.items() if at <= now]:
            del self._again[id]
            self._touched[id] = None
        if now - self._swept >= SWEEP_EVERY:
            self._swept = now
            self._touched.update(dict.fromkeys(case.id for case in self._book.open))

    def _refresh(self, id: str) -> None:
        if (case := self._book.get(id)) is None:
            self._planner.remove(id)
            return
        story = self.story(case)
        self._notice(story)
        self._planner.update(story)

    def _do(self, step: steps.Step) -> None:
        case = self._book[step.case]
        match step:
            case steps.Order(hook=hook, stage=stage, attempt=attempt, left=left):
                run = self._desk.order(case, hook, stage, attempt, left)
                self._touch(case.id)
                self._begin(case, hook, run, left)
            case steps.Start(run=run, left=left):
                self._begin(case, _hook(case, run), run, left)
            case steps.Cancel(run=run):
                if self._desk.cancel(case.id, run):
                    self._touch(case.id)
                else:
                    self._desk.attend(case.id, run)
            case steps.Stop(run=run):
                self._desk.stop(case.id, run)
            case steps.Overdue(run=run):
                self._tell_overdue(case, run)
            case steps.Approve() | steps.SayReady() | steps.AskReady():
                self._agreeing.do(step)
            case steps.Close():
                self._close(case)

    def _begin(self, case: Case, hook: Hook, run: Run, left: float | None) -> None:
        try:
            when = self._desk.start(case, hook, run, left)
        except OSError as error:
            self._troubles.begin("start", f"no command can be started: {error}")
            when = monotonic() + START_AGAIN
        self._again[case.id] = when or monotonic() + BEGUN_WITHIN
        if when:
            return
        if when is not None and not self.dry:
            self._tell_begun(case, hook, run, left)

    def _tell_begun(self, case: Case, hook: Hook, run: Run, left: float | None) -> None:
        started = self._started.setdefault(case.id, set())
        if run.id in started:
            says = f"the runner of {run.id} ends before it begins; is the disk full?"
            self._troubles.begin("start", says)
            return
        self._troubles.end("start")
        started.add(run.id)
        limit = hook.timeout if left is None else round(min(hook.timeout, left), 3)
        self.tell("hook begun", **_facts(case, run), limit=limit)

    def _notice(self, story: CaseWithRuns) -> None:
        """Runs that have ended are told once; those that have not are watched."""
        told = self._told.setdefault(story.case.id, set())
        for run in story.runs:
            if run.state == State.WORKING:
                self._desk.attend(story.case.id, run)
            elif not run.active and run.id not in told:
                told.add(run.id)
                self._overdue.discard((story.case.id, run.id))
                if not self._desk.was_told(story.case.id, run):
                    self._tell_ended(story, run)
                    self._desk.mark_told(story.case.id, run)

    def _tell_ended(self, story: CaseWithRuns, run: Run) -> None:
        case, result = story.case, run.result
        self.tell(
            "hook ended",
            **_facts(case, run),
            outcome="lost" if result is None else result.outcome,
            ok=run.good,
            code=None if result is None else result.code,
            seconds=None if result is None else result.seconds,
            said=result.said if result and result.said else self._desk.output(case.id, run),
        )
        runs = story.of(run.hook, run.stage)
        if run is runs[-1] and standing(runs, _hook(case, run), run.stage).given_up:
            why = None
            if run.stage == "undo":
                room = self._desk.room(case.id, run.hook)
                why = (
                    f"tried {run.attempt} times; what {run.hook} prepared is still in place. Undo"
                    f" it by hand; what the hook saved for its undo is in {room}"
                )
            self.tell("hook given up", **_facts(case, run), why=why)

    def _tell_overdue(self, case: Case, run: Run) -> None:
        if (case.id, run.id) in self._overdue:
            return
        self._overdue.add((case.id, run.id))
        process = self._desk.runner(case.id, run)
        self.tell(
            "hook overdue",
            **_facts(case, run),
            process=process,
            why=f"process {process}, which enforces the command's time limit and writes its result,"
            f" is stopped or cannot write: resume it (kill -CONT {process}), free space if the disk"
            f" is full, or kill it (kill -KILL {process}) to have the command ended and run again",
        )

    def _close(self, case: Case) -> None:
        self._agreeing.forget(case)
        self._book.close(case, self.client.now())
        self._told.pop(case.id, None)
        self._started.pop(case.id, None)


def _hook(case: Case, run: Run) -> Hook:
    return next(hook for hook in case.hooks if hook.name == run.hook)


def _facts(case: Case, run: Run) -> dict[str, Any]:
    return {
        "event": case.event.id,
        "type": case.event.type,
        "rule": case.rule.name,
        "hook": run.hook,
        "stage": run.stage,
        "attempt": run.attempt,
    }
