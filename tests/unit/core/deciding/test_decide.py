"""Any sequence of commands, clock moves and outages, on groups of every kind.

What must hold is in `group_checker.py` (each commit) and `group_model.py` (`check_time`,
`check_history`, `check_pending_survives`); this file only thinks up what may happen.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forewarn.core import (
    Changes,
    Durations,
    EventType,
    GroupKind,
    Machine,
    Policy,
    Source,
    commands,
    due,
)
from forewarn.core.events import Event, Status
from forewarn.core.fleet import OverWhen
from forewarn.core.time import DAY, HOUR, MINUTE, SECOND, Duration
from forewarn.core.windows.model import Blackout
from forewarn.core.windows.syntax import parse_window
from helpers.examples import examples
from helpers.group_model import START, GroupWorld
from helpers.group_rules import NIGHTS

NAMES = ("m0", "m1", "m2", "m3", "m4")
HOSTS = ("h0", "h1", "h2")

some = st.integers(0, 30)  # picks one of however many there are
few = st.lists(some, min_size=1, max_size=3)
types = st.sampled_from([*EventType, EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY])
done = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(HOSTS), max_size=2)
rules_in_force = st.builds(
    Durations,
    speed=st.sampled_from([1.0, 60.0, 7.0]),
    silence=st.sampled_from([DAY, None]),
    start_grace=st.sampled_from([60 * SECOND, 0]),
    enable_delay=st.sampled_from([0, 2 * MINUTE]),
    until_heard=st.booleans(),
)
policies = st.builds(
    Policy,
    all_instances_down=st.booleans(),
    user_event_limit=st.sampled_from([None, 1, 2]),
    auto_approve=st.sampled_from([(), (EventType.REBOOT,), (EventType.REBOOT, EventType.REDEPLOY)]),
    windows=st.sampled_from([(), (), (parse_window(NIGHTS),)]),
    blackouts=st.sampled_from([(), (), (Blackout(begins=START + DAY // 2, ends=START + DAY),)]),
    over_when=st.sampled_from([None, OverWhen.HEARD, OverWhen.HEARD, OverWhen.CARRIED_OUT]),
    back_within=st.sampled_from([None, None, 5 * MINUTE]),
)
inventories = st.lists(
    st.builds(
        Machine,
        name=st.sampled_from(NAMES),
        update_domain=st.integers(0, 2),
        host=st.sampled_from(HOSTS),
        spot=st.booleans(),
    ),
    min_size=3,
    max_size=len(NAMES),
    unique_by=lambda machine: machine.name,
)
notices = st.one_of(st.none(), st.none(), st.integers(-SECOND, 30 * MINUTE), st.just(8 * DAY))
outcomes = st.one_of(
    st.builds(commands.Done, done),
    st.builds(commands.Done, done),
    st.builds(commands.Done, done),
    st.builds(commands.Again, st.integers(START, START + DAY)),
    st.builds(commands.Failed, st.just("no answer from the host")),
    st.builds(commands.Unclear, st.just("the connection broke")),
)


class AnyGroup(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld()

    @initialize(
        kind=st.sampled_from(GroupKind),
        rules=rules_in_force,
        domains=st.lists(st.integers(0, 2), min_size=len(NAMES), max_size=len(NAMES)),
        policy=policies,
        listening=st.booleans(),
    )
    def begin(
        self, kind: GroupKind, rules: Durations, domains: list[int], policy: Policy, listening: bool
    ) -> None:
        self.world = GroupWorld(rules)
        made = [
            Machine(
                name=name,
                update_domain=domain,
                host=HOSTS[domain],
                spot=domain == 1,
                labels={"domain": str(domain)},
            )
            for name, domain in zip(NAMES, domains, strict=True)
        ]
        self.world.define(*made, kind=kind, policy=policy)
        if listening:
            self.world.poll()

    # What there is to pick from.

    def events(self, status: Status | None = None) -> list[Event]:
        return [e for e in self.world.group.events if status is None or e.status is status]

    def any_id(self, pick: int) -> str:
        """Mostly an active event, sometimes one that is over, sometimes none at all."""
        active = [event.id for event in self.world.group.events]
        ids = [*active, *active, *sorted(self.world.referee.over), "E-never"]
        return ids[pick % len(ids)]

    def mates(self, pick: int, more: list[int]) -> tuple[str, ...]:
        """A machine, and some others of its update domain."""
        here = self.world.group.machines
        first = here[pick % len(here)]
        domain = [m.name for m in here if m.update_domain == first.update_domain]
        return tuple(dict.fromkeys([first.name, *(domain[i % len(domain)] for i in more)]))

    # The group, its inventory and whether it listens.

    @rule(
        what=st.sampled_from(["redefine", "remove", "restore", "disable"]),
        machines=inventories,
        policy=policies,
        pick=some,
    )
    def something_rare(self, what: str, machines: list[Machine], policy: Policy, pick: int) -> None:
        here = self.world.group.machines
        match what:
            case "redefine":
                self.world.define(*machines, kind=self.world.group.kind, policy=policy)
            case "remove":
                gone = here[pick % len(here)]
                rest = [m for m in here if m != gone or len(here) == 1]
                self.world.define(*rest, kind=self.world.group.kind)
            case "restore":
                name = next((m.name for m in here if m.gone), "nobody" if pick > 20 else "m0")
                self.world.ask(commands.Restore(machine=name, by="ops"))
            case _:
                self.world.do(commands.Disable(by="ops"))

    @rule()
    def poll(self) -> None:
        self.world.poll()

    @rule(pick=few, times=st.integers(1, 3), every=st.sampled_from([SECOND, MINUTE, HOUR]))
    def machines_poll(self, pick: list[int], times: int, every: Duration) -> None:
        for time in range(times):
            if time:
                self.world.later(every)
            self.world.hear(*(NAMES[one % len(NAMES)] for one in pick))

    @rule()
    def those_back_are_recorded(self) -> None:
        self.world.do(commands.Heard(machines=NAMES[:3]))

    @rule()
    def tick(self) -> None:
        self.world.tick()

    # Announcements.

    @rule(
        type=types,
        pick=some,
        more=st.lists(some, max_size=2),
        notice=notices,
        stray=st.sampled_from([(), (), (), ("m0",)]),
    )
    def announce(
        self,
        type: EventType,
        pick: int,
        more: list[int],
        notice: Duration | None,
        stray: tuple[str, ...],
    ) -> None:
        self.world.ask(
            commands.Raise(
                id=self.world.new_id(),
                type=type,
                machines=tuple(dict.fromkeys((*self.mates(pick, more), *stray))),
                by="ops",
                notice=notice,
                short_notice=True,
            )
        )

    @rule(
        type=types,
        machines=st.lists(st.sampled_from([*NAMES, "nobody"]), max_size=3),
        source=st.sampled_from(Source),
        notice=notices,
        ahead=st.one_of(st.none(), st.integers(-SECOND, 100 * DAY)),
        short=st.booleans(),
        ignoring=st.sampled_from([False, False, True]),
        duration=st.sampled_from([-1, -1, 0, 9, 86_401, -2]),
    )
    def announce_anything(
        self,
        type: EventType,
        machines: list[str],
        source: Source,
        notice: Duration | None,
        ahead: Duration | None,
        short: bool,
        ignoring: bool,
        duration: int,
    ) -> None:
        self.world.ask(
            commands.Raise(
                id=self.world.new_id(),
                type=type,
                machines=tuple(machines),
                by="ops",
                source=source,
                notice=notice,
                not_before=None if ahead is None else self.world.now.at + ahead,
                short_notice=short,
                ignore_windows=ignoring,
                duration=duration,
            )
        )

    @rule(pick=few, notice=st.integers(5, 8))
    def delete_some(self, pick: list[int], notice: int) -> None:
        """Scale-in: deletes of single machines with about the same notice."""
        for one in pick:
            self.world.ask(
                commands.Raise(
                    id=self.world.new_id(),
                    type=EventType.TERMINATE,
                    machines=self.mates(one, []),
                    by="ops",
                    notice=notice * MINUTE,
                )
            )

    @rule(
        type=st.sampled_from([EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY]),
        pick=some,
        more=st.lists(some, max_size=1),
    )
    def strike(self, type: EventType, pick: int, more: list[int]) -> None:
        self.world.ask(
            commands.Fail(
                id=self.world.new_id(), type=type, machines=self.mates(pick, more), by="watchdog"
            )
        )

    @rule(type=types, pick=some)
    def maintain(self, type: EventType, pick: int) -> None:
        (machine,) = self.mates(pick, [])
        self.world.ask(
            commands.UserMaintenance(id=self.world.new_id(), type=type, machine=machine, by="ann")
        )

    @rule(pick=some, type=st.sampled_from([EventType.REDEPLOY, EventType.PREEMPT]))
    def see_through(self, pick: int, type: EventType) -> None:
        """A machine that is moved, or evicted, here and now."""
        names = self.mates(pick, [])
        id = self.world.new_id()
        asked = self.world.ask(
            commands.UserMaintenance(id=id, type=type, machine=names[0], by="ann")
            if type is EventType.REDEPLOY
            else commands.Raise(id=id, type=type, machines=names, by="ann")
        )
        if isinstance(asked, Changes):
            self.world.ask(commands.OperatorApprove(id=asked.event, by="ann"))
            if self.world.status(asked.event) is Status.STARTED:
                self.world.carried_out(asked.event, **{names[0]: "h9"})

    # Votes, drivers and operators.

    @precondition(lambda self: self.world.group.events)
    @rule(
        pick=some,
        by=st.sampled_from([*NAMES, "nobody"]),
        ready=st.booleans(),
        notes=st.lists(st.sampled_from(["", "a", "b", "x" * 1_025]), min_size=1, max_size=20),
    )
    def say_whether_ready(self, pick: int, by: str, ready: bool, notes: list[str]) -> None:
        events = self.world.group.events
        id = events[pick % len(events)].id
        for n, note in enumerate(notes):
            output = ready if n % 3 else not ready
            self.world.ask(commands.Prepare(id=id, machine=by, ready=output, note=note))

    @precondition(lambda self: self.events(Status.SCHEDULED))
    @rule(picks=few, by=st.sampled_from(NAMES))
    def approve(self, picks: list[int], by: str) -> None:
        waiting = self.events(Status.SCHEDULED)
        ids = [waiting[pick % len(waiting)].id for pick in picks]
        self.world.ask(self.world.approval(*ids, by=by))

    @precondition(lambda self: self.events(Status.STARTED))
    @rule(pick=some, outcome=outcomes)
    def driver_answers(self, pick: int, outcome: commands.Outcome) -> None:
        running = self.events(Status.STARTED)
        self.world.answer(running[pick % len(running)].id, outcome)

    @precondition(lambda self: self.events())
    @rule(
        what=st.sampled_from(
            [
                *("approve", "overrule", "ignore", "postpone", "cancel"),
                *("retry", "finish", "abandon", "answer"),
            ]
        ),
        picks=few,
        reason=st.sampled_from(["seen with my own eyes", " "]),
        attempt=st.integers(0, 3),
        outcome=outcomes,
    )
    def ask_of_any_event(
        self, what: str, picks: list[int], reason: str, attempt: int, outcome: commands.Outcome
    ) -> None:
        """Of active events mostly, but also of some that are over and of one that never was."""
        ids = [self.any_id(pick) for pick in picks]
        match what:
            case "approve":
                self.world.ask(self.world.approval(*ids))
            case "overrule":
                self.world.ask(commands.OperatorApprove(id=ids[0], by="ops"))
            case "ignore":
                self.world.ask(commands.OperatorApprove(id=ids[0], by="ops", ignore_windows=True))
            case "postpone":
                event = self.world.group.event(ids[0])
                later = START if event is None else event.not_before + (attempt - 1) * MINUTE
                self.world.ask(
                    commands.Postpone(id=ids[0], by="ann", group="web", not_before=later)
                )
            case "cancel":
                self.world.ask(commands.Cancel(id=ids[0], by="ops"))
            case "retry":
                self.world.ask(commands.Retry(id=ids[0], by="ops"))
            case "finish":
                self.world.ask(commands.Finish(id=ids[0], by="ops", reason=reason))
            case "abandon":
                self.world.ask(commands.Abandon(id=ids[0], by="ops", reason=reason))
            case _:
                self.world.do(commands.Answer(id=ids[0], attempt=attempt, outcome=outcome))

    @rule(
        groups=st.sampled_from([(), ("web",), ("other",)]),
        label=st.sampled_from(["", "", "domain=0", "domain=1"]),
    )
    def halt(self, groups: tuple[str, ...], label: str) -> None:
        self.world.halt(groups=groups, label=label)

    @precondition(lambda self: self.world.now.halts)
    @rule(pick=some)
    def release(self, pick: int) -> None:
        halts = self.world.now.halts
        self.world.release(halts[pick % len(halts)].id)

    @rule(host=st.sampled_from(HOSTS))
    def cut_off(self, host: str) -> None:
        self.world.cut_off(host)

    @precondition(lambda self: self.world.now.unreachable)
    @rule(pick=some)
    def joined(self, pick: int) -> None:
        hosts = sorted(self.world.now.unreachable)
        self.world.joined(hosts[pick % len(hosts)])

    # Time.

    @rule(by=st.one_of(st.integers(1, 5 * SECOND), st.integers(1, 20 * MINUTE)))
    def a_while_passes(self, by: Duration) -> None:
        self.world.later(by)

    @rule(by=st.integers(1, 2 * DAY))
    def a_long_time_passes(self, by: Duration) -> None:
        self.world.later(by)

    @rule(ticks=st.integers(0, 3), early=st.sampled_from([0, 0, 1]))
    def time_comes(self, ticks: int, early: int) -> None:
        """To the very instant at which something is due, or to just before it."""
        for tick in range(ticks + 1):
            at = due(self.world.group, self.world.now)
            if at is None:
                return
            self.world.at(max(self.world.now.at, at - early))
            if tick < ticks:
                self.world.tick()

    @rule(length=st.one_of(st.integers(0, 90 * SECOND), st.integers(0, 2 * DAY)))
    def outage(self, length: Duration) -> None:
        self.world.outage(length)

    @rule(length=st.one_of(st.just(0), st.integers(0, 2 * DAY)))
    def a_copy_becomes_the_state(self, length: Duration) -> None:
        self.world.restored(length)

    # Always.

    @invariant()
    def time_changes_what_is_due(self) -> None:
        self.world.check_time()

    def teardown(self) -> None:
        if self.world.sound and self.world.group.machines:
            self.world.check_history()
            self.world.check_pending_survives()
            self.world.check_history()


TestAnyGroup = AnyGroup.TestCase
TestAnyGroup.settings = settings(
    max_examples=examples(60),
    stateful_step_count=50,
    deadline=None,
    report_multiple_bugs=False,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
