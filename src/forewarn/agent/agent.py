"""The agent's loop: looks at the document, reads off the state what is next, and does it.

Everything that lasts is on the desk; whatever is in memory here can be lost at any moment. What
takes time (a command, an answer of the endpoint) is done beside the loop, so that nothing delays
the next look.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from forewarn.agent import planning, ports, steps
from forewarn.agent.agreeing import Agreeing
from forewarn.agent.book import Book
from forewarn.agent.cases import Case
from forewarn.agent.config import Config, Hook
from forewarn.agent.runs import Run, State
from forewarn.agent.standing import standing
from forewarn.agent.steps import Now, Story
from forewarn.agent.telling import Tell
from forewarn.agent.troubles import Troubles
from forewarn.client.events import Look
from forewarn.client.identity import Identity
from forewarn.guard import Tasks, monotonic, pause

LOOK_WITHIN = 5.0  # seconds between two looks while an event is being handled
ENDPOINT_PATIENCE = 10.0  # seconds that it may be silent before that is told
IDENTITY_EVERY = 600.0  # seconds until it is asked again: a name and labels may become others
IDENTITY_PAUSE = 5.0  # seconds between two tries to learn who we are
STATE_PAUSE = 2.0  # seconds until a state that cannot be written is tried again
START_AGAIN = 1.0  # seconds until a runner that cannot be started is tried again
LONGEST_REST = 3_600.0  # seconds without anything to do
LEAST_REST = 0.01
MAX_ROUNDS = 100  # of planning at once; each closes, cancels or begins something


class Agent:
    def __init__(
        self,
        config: Config,
        client: ports.Client,
        desk: Callable[[Callable[[], None], Tasks], ports.Desk],
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
        self._desk = desk(self._kicked.set, self._tasks)
        self._book = Book(config, self._desk, tell)
        self._troubles = Troubles(tell)
        self._agreeing = Agreeing(
            client,
            self._book,
            config.shared,
            tell,
            self._troubles,
            tasks=self._tasks,
            done=self._kicked.set,
            dry=dry,
        )
        self._told: set[tuple[str, str]] = set()  # runs that are known to have ended
        self._started: set[tuple[str, str]] = set()  # runs that were started in this life
        self._wake: datetime | None = None
        self._rest: float | None = None
        self._broken: BaseException | None = None

    # What others may look at

    @property
    def cases(self) -> tuple[Case, ...]:
        """Those that are being handled, and those that are still remembered."""
        return tuple(self._book)

    def story(self, case: Case) -> Story:
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
                with self._keeping("runs"):
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
        rests += [at - monotonic() for at in (self._rest, self._agreeing.next()) if at is not None]
        if self._wake is not None:
            rests.append((self._wake - self.client.now()).total_seconds())
        return max(LEAST_REST, min(rests))

    @contextlib.contextmanager
    def _keeping(self, what: str) -> Iterator[None]:
        """A state that cannot be written now may be written later: nothing has been done that is
        not on it."""
        try:
            yield
        except OSError as error:
            self._troubles.begin(what, str(error))
            self._rest = min(self._rest or float("inf"), monotonic() + STATE_PAUSE)
        else:
            self._troubles.end(what)

    def _surprised(self, name: str, error: BaseException) -> None:
        """An errand is run again. Without looks there is no agent."""
        self._troubles.begin(name, f"{type(error).__name__}: {error}")
        if name == "look":
            self._broken = error
        self._kicked.set()

    # What is next

    def reconcile(self) -> None:
        for _ in range(MAX_ROUNDS):
            stories = [self.story(case) for case in self._book if case.open]
            for story in stories:
                self._notice(story)
            now = Now(self.client.now(), monotonic())
            plan = planning.plan(stories, now, self._agreeing.all_ready, blind=self.looked is None)
            self._wake, self._rest = plan.wake, plan.rest
            news = [self._try(step) for step in plan.steps]  # all of them
            if not any(news):
                return

    def _try(self, step: steps.Step) -> bool:
        """One case that cannot be written keeps no other from going on."""
        with self._keeping(f"case {step.case}"):
            return self._do(step)
        return False

    def _do(self, step: steps.Step) -> bool:
        """Whether there is something new to plan with."""
        case = self._book[step.case]
        match step:
            case steps.Order(hook=hook, stage=stage, attempt=attempt, left=left):
                run = self._desk.order(case, hook, stage, attempt, left)
                self._begin(case, hook, run, left)
                return self.dry  # where all that is begun has ended
            case steps.Start(run=run, left=left):
                self._begin(case, _hook(case, run), run, left)
            case steps.Cancel(run=run):
                if self._desk.cancel(case.id, run):
                    return True
                self._desk.attend(case.id, run)
            case steps.Stop(run=run):
                self._desk.stop(case.id, run)
            case steps.Approve() | steps.SayReady() | steps.AskReady():
                self._agreeing.do(step)
            case steps.Close():
                self._close(case)
                return True
        return False

    def _begin(self, case: Case, hook: Hook, run: Run, left: float | None) -> None:
        try:
            when = self._desk.start(case, hook, run, left)
        except OSError as error:
            self._troubles.begin("start", f"no command can be started: {error}")
            when = monotonic() + START_AGAIN
        if when:
            self._rest = min(self._rest or when, when)
        elif when is not None and not self.dry:
            self._tell_begun(case, hook, run, left)

    def _tell_begun(self, case: Case, hook: Hook, run: Run, left: float | None) -> None:
        key = (case.id, run.id)
        if key in self._started:
            says = f"the runner of {run.id} ends before it begins; is the disk full?"
            self._troubles.begin("start", says)
            return
        self._troubles.end("start")
        self._started.add(key)
        limit = hook.timeout if left is None else round(min(hook.timeout, left), 3)
        self.tell("hook begun", **_facts(case, run), limit=limit)

    def _notice(self, story: Story) -> None:
        """Runs that have ended are told once; those that have not are watched."""
        for run in story.runs:
            if run.state == State.WORKING:
                self._desk.attend(story.case.id, run)
            elif not run.active and (key := (story.case.id, run.id)) not in self._told:
                self._told.add(key)
                if not self._desk.was_told(story.case.id, run):
                    self._tell_ended(story, run)
                    self._desk.mark_told(story.case.id, run)

    def _tell_ended(self, story: Story, run: Run) -> None:
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
            self.tell("hook given up", **_facts(case, run))

    def _close(self, case: Case) -> None:
        self._agreeing.forget(case)
        self._book.close(case, self.client.now())
        self._told = {key for key in self._told if key[0] != case.id}
        self._started = {key for key in self._started if key[0] != case.id}


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
