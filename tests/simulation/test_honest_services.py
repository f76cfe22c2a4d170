"""A small honest service with slow lines, kills and many clients: never accused.

The model below keeps the promises by being simple: one thing happens at a time. What clients
record is that, seen through requests that overlap at random, in any version.
"""

import math
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from forewarn.judge import judge
from helpers.examples import examples
from helpers.judge_traces import (
    ALL_VERSIONS,
    FLEET,
    T0,
    Event,
    Recording,
    document,
    event,
    started,
)

MACHINES: dict[str, Any] = FLEET["machines"]
GRACE = 60.0
# The minimum notice of each type, in seconds.
NOTICE = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Preempt": 30, "Terminate": 300}
FAILURES = ("Reboot", "Redeploy")  # what a failure, which nobody can announce, may be


@dataclass
class Group:
    name: str
    incarnation: int = 1
    events: list[Event] = field(default_factory=list)
    approved: set[str] = field(default_factory=set)
    listed: set[str] = field(default_factory=set)
    untouched: set[str] = field(default_factory=set)  # Started, and not yet carried out
    enabled: bool = False
    joint: set[str] = field(default_factory=set)  # these do not start by themselves
    windows: dict[str, tuple[float, float]] = field(default_factory=dict)
    hidden: list[Event] = field(default_factory=list)  # Started, and shown to nobody

    def change(self, events: list[Event]) -> None:
        self.events = events
        self.listed |= {shown["EventId"] for shown in events}
        self.incarnation += 1

    def tick(self, now: float, steady: float) -> None:
        """Start what may start, one after the other, until nothing may."""
        while ready := next((e for e in self.events if self.may_start(e, now, steady)), None):
            self.start(ready)

    def start(self, ready: Event) -> None:
        self.untouched.add(ready["EventId"])
        self.change([started(e) if e is ready else e for e in self.events])

    def waiting(self, id: str) -> Event | None:
        """The event, if it is Scheduled."""
        for shown in self.events:
            if shown["EventId"] == id:
                return shown if shown["EventStatus"] == "Scheduled" else None
        return None

    def may_start(self, one: Event, now: float, steady: float) -> bool:
        if one["EventStatus"] == "Started" or one["EventId"] in self.joint:
            return False
        due = one["NotBefore"] <= now and steady + GRACE <= now
        if not self.in_window(one, now):
            return False
        if not due and one["EventId"] not in self.approved:
            return False
        if one["EventType"] == "Terminate" and not due:
            return all(
                other["EventId"] in self.approved or other["NotBefore"] <= now
                for other in self.events
                if other["EventType"] == "Terminate"
                and other["EventStatus"] == "Scheduled"
                and other["NotBefore"] <= one["NotBefore"]
            )
        if one["EventType"] in ("Preempt", "Terminate"):
            return True
        return self.is_free_for(one)

    def in_window(self, one: Event, now: float) -> bool:
        opens, closes = self.windows.get(one["EventId"], (-math.inf, math.inf))
        return opens <= now < closes

    def is_free_for(self, one: Event) -> bool:
        running = [e for e in (*self.events, *self.hidden) if e["EventStatus"] == "Started"]
        if any(set(e["Resources"]) & set(one["Resources"]) for e in running):
            return False
        return one["EventSource"] == "User" or all(domain(e) == domain(one) for e in running)


def domain(shown: Event) -> int:
    return int(MACHINES[shown["Resources"][0]]["update_domain"])


class Town:
    """The service, its clients and what they record."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = T0
        self.raised = 0
        self.steady = T0 - GRACE  # since when there was no interruption
        self.recording = Recording(grace=GRACE).note({"kind": "up", "t": T0})
        self.groups = {name: Group(name) for name in FLEET["groups"]}
        self.tags: dict[tuple[str, str], str] = {}
        self.hosts = 0  # that were maintained
        self.joints: list[dict[str, str]] = []  # of hosts that wait: the groups, and their events

    def run(self, steps: int) -> Recording:
        acts = (
            self.poll,
            self.raise_event,
            self.approve,
            self.end_event,
            self.kill,
            self.stop,
            self.step,
            self.disable,
            self.maintain_host,
            self.delete_quietly,
            self.end_quietly,
        )
        for _ in range(steps):
            self.now += self.random.choice((0.0, 0.001, 0.3, 1.0, 30.0, 200.0))
            self.tick()
            self.random.choices(acts, (60, 6, 12, 8, 1, 0.5, 0.5, 0.3, 2, 1, 1))[0]()
        return self.recording

    def tick(self) -> None:
        """What starts may matter to a host that waits, but no end comes of it."""
        for group in self.groups.values():
            group.tick(self.now, self.steady)
        for joint in tuple(self.joints):
            waiting = {
                name: shown
                for name, id in joint.items()
                if (shown := self.groups[name].waiting(id))
            }
            if not waiting:  # what is no longer Scheduled never is again
                self.joints.remove(joint)
            elif self.may_start(waiting):
                for name, one in waiting.items():
                    self.groups[name].start(one)

    def may_start(self, joint: dict[str, Event]) -> bool:
        groups = self.groups
        if not all(
            groups[n].is_free_for(e) and groups[n].in_window(e, self.now) for n, e in joint.items()
        ):
            return False
        first = next(iter(joint.values()))
        due = first["NotBefore"] <= self.now and self.steady + GRACE <= self.now
        return due or self.agreed(joint)

    def agreed(self, joint: dict[str, Event]) -> bool:
        approved = {n for n, e in joint.items() if e["EventId"] in self.groups[n].approved}
        return bool(approved) and all(n in approved or not self.groups[n].enabled for n in joint)

    def between(self) -> dict[str, float]:
        """Asked some time before now, answered some time after."""
        spread = self.random.choice((0.0005, 0.01, 2.0, 40.0))
        asked = self.now - self.random.uniform(0, spread)
        return {"asked": asked, "t": self.now + 0.0001 + self.random.uniform(0, spread)}

    def machine_of(self, group: Group) -> str:
        names = [name for name, seat in MACHINES.items() if seat["group"] == group.name]
        return self.random.choice(names)

    def group(self) -> Group:
        return self.random.choice(list(self.groups.values()))

    def poll(self) -> None:
        group = self.group()
        group.enabled = True
        machine, version = self.machine_of(group), self.random.choice(ALL_VERSIONS)
        text = document(group.incarnation, group.events, version, cloud=group.name == "roles")
        headers = [("Metadata", "true")]
        known = self.tags.get((machine, version), "0")
        asks = self.random.random() < 0.3
        beside: dict[str, Any] = {}
        if self.random.random() < 0.2:
            query = f"api-version={version}" + (f"&etag={known}" if asks else "")
            beside["target"] = f"/forewarn/v1/wait?{query}"
        elif asks:
            headers.append(("If-None-Match", known))
        self.recording.get(
            answer=text,
            machine=machine,
            version=version,
            headers=headers,
            **beside,
            **self.between(),
        )
        record = self.recording.records[-1]
        tag = dict(record["answer_headers"])["ETag"]
        if tag == known and asks:
            record["status"], record["answer"] = 304, ""
        self.tags[machine, version] = tag

    def raise_event(self) -> None:
        group, random = self.group(), self.random
        kind = random.choice(tuple(NOTICE))
        on_purpose = random.random() < 0.6
        notice = random.choice((31, 300)) if on_purpose else self.notice(kind)
        not_before = float(math.ceil(self.now + notice))
        # Deletes seldom come alone.
        for _ in range(random.choice((1, 2, 3)) if kind == "Terminate" else 1):
            if len(group.events) < 8:
                id = self.raise_one(group, kind, not_before)
                if on_purpose:
                    self.recording.note({"kind": "short-notice", "t": self.stamp(), "event": id})

    def notice(self, kind: str) -> int:
        return NOTICE[kind] + self.random.choice((0, 0, 300, 90_000))

    def maintain_host(self) -> None:
        not_before = float(math.ceil(self.now + self.notice("Freeze")))
        names = self.random.sample(sorted(self.groups), self.random.choice((2, 2, 3)))
        joint = {}
        for name in names:
            id = self.raise_one(self.groups[name], "Freeze", not_before, alone=False)
            joint[name] = id
        self.hosts += 1
        self.joints.append(joint)
        self.recording.joint(self.now, **joint)
        self.recording.records[-1]["id"] = str(self.hosts)

    def delete_quietly(self) -> None:
        group = self.group()
        machine = self.machine_of(group)
        id = self.new_id()
        group.hidden.append(started(event(id, type="Terminate", resources=[machine])))
        self.recording.unannounced(self.stamp(), id, [machine], group=group.name)
        self.recording.impact(self.now, id, [machine], "Terminate")

    def end_quietly(self) -> None:
        for group in self.groups.values():
            for over in group.hidden:
                if self.random.random() < 0.9:
                    self.recording.over(self.stamp(), over["EventId"])
            group.hidden = []

    def stamp(self) -> float:
        """World, as a line has it that is no exchange."""
        return self.now + self.random.uniform(-1, 1)

    def new_id(self) -> str:
        self.raised += 1
        return f"{self.raised:08X}-0000-4000-8000-{self.random.getrandbits(48):012X}"

    def raise_one(self, group: Group, kind: str, not_before: float, alone: bool = True) -> str:
        random = self.random
        first = self.machine_of(group)
        resources = [first] + [
            name
            for name, seat in MACHINES.items()
            if seat["group"] == group.name
            and name != first
            and seat["update_domain"] == MACHINES[first]["update_domain"]
            and random.random() < 0.5
        ]
        user = kind in ("Reboot", "Redeploy") and random.random() < 0.5
        id = self.new_id()
        shown = event(
            id,
            type=kind,
            resources=resources,
            not_before=not_before,
            EventSource="User" if user else "Platform",
            DurationInSeconds=-1 if user else 9,
        )
        failed = alone and kind in FAILURES and random.random() < 0.2
        if failed:
            group.untouched.add(id)
        elif kind == "Freeze" and random.random() < 0.4:
            opens = self.now + random.choice((-1.0, 20.0, 400.0, 2000.0))
            closes = opens + random.choice((300.0, 2000.0, math.inf))
            group.windows[id] = opens, closes
            self.recording.window(opens, closes if closes < math.inf else None, id)
        if not alone:
            group.joint.add(id)
        group.change([*group.events, started(shown) if failed else shown])
        return id

    def approve(self) -> None:
        group = self.group()
        machine = self.machine_of(group)
        if not group.listed:
            return
        id = self.random.choice(sorted(group.listed)[-4:])
        answered = self.random.random() < 0.8
        counted = answered or self.random.random() < 0.5
        if counted:
            group.approved.add(id)
            self.tick()
        times = self.between()
        self.recording.approve(
            times["t"],
            id,
            asked=times["asked"],
            machine=machine,
            status=200 if answered else None,
        )

    def end_event(self) -> None:
        group = self.group()
        if not group.events:
            return
        over = self.random.choice(group.events)
        id = over["EventId"]
        if over["EventStatus"] == "Started" and id in group.untouched:
            group.untouched.remove(id)
            self.recording.impact(self.now, id, over["Resources"], over["EventType"])
            return
        deletes = over["EventType"] in ("Preempt", "Terminate")
        deleted = set(over["Resources"]) if deletes and over["EventStatus"] == "Started" else set()
        group.change(
            [
                e
                for e in group.events
                if e is not over
                # Who is deleted takes along what names nobody else; what goes as one stays.
                and not (deleted.issuperset(e["Resources"]) and e["EventStatus"] == "Scheduled")
            ]
        )
        self.tick()

    def kill(self) -> None:
        self.recording.exchange(self.now + 0.5, asked=self.now - 0.1, status=None)
        self.now += self.random.choice((3, 40, 2000))
        self.begin()

    def stop(self) -> None:
        self.recording.down(self.now + self.random.uniform(-1, 1))
        self.now += self.random.choice((5, 40, 2000))
        self.begin()

    def begin(self) -> None:
        self.steady = self.now
        self.recording.up(self.now + self.random.uniform(-1, 1))

    def step(self) -> None:
        seconds = self.random.choice((0.5, 3.0, 900.0))
        self.now += seconds
        self.steady = self.now
        self.recording.step(self.now, seconds)

    def disable(self) -> None:
        group = self.group()
        self.now += 50
        self.recording.note({"kind": "disabled", "t": self.now, "group": group.name})
        group.enabled = False
        self.tick()
        self.now += 50
        group.incarnation = 1


@pytest.mark.parametrize("seed", range(examples(30)))
def test_the_judge_accuses_no_correct_service(seed: int) -> None:
    recording = Town(seed).run(400)
    judgement = judge(recording.records)
    assert judgement.ok, judgement.render()
    assert judgement.events > 3


def test_the_simulated_traffic_covers_what_the_judge_checks() -> None:
    recording = Town(1).run(3000)
    statuses = {record.get("status") for record in recording.records}
    assert {200, 304, None} <= statuses
    assert any(record["kind"] == "impact" for record in recording.records)


@pytest.mark.parametrize("rule", ["grace-start", "coupling"])
def test_the_judge_accuses_a_service_that_starts_events_too_early(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Group.may_start

    def rash(self: Group, one: Event, now: float, steady: float) -> bool:
        if rule == "grace-start":
            return honest(self, one, now, -GRACE)
        coupled = one["EventType"] == "Terminate" and one["EventId"] in self.approved
        if one["EventStatus"] == "Scheduled" and coupled:
            return True
        return honest(self, one, now, steady)

    monkeypatch.setattr(Group, "may_start", rash)
    for seed in range(20):
        found = {finding.rule for finding in judge(Town(seed).run(1000).records).findings}
        assert found <= {rule}
        if found:
            return
    pytest.fail("not accused")


def _unasked(town: Town, joint: dict[str, Event]) -> bool:
    """A host is worked on as soon as one of its groups agrees."""
    return any(e["EventId"] in town.groups[n].approved for n, e in joint.items())


def _alone(group: Group, one: Event, now: float, steady: float) -> bool:
    """An event of a host starts without the others."""
    if one["EventId"] in group.joint and one["EventStatus"] == "Scheduled":
        return one["EventId"] in group.approved and group.is_free_for(one)
    return HONEST(group, one, now, steady)


HONEST = Group.may_start


@pytest.mark.parametrize(
    ("rule", "others", "where", "name", "rash"),
    [
        ("joint-approval", set(), Town, "agreed", _unasked),
        ("joint-start", {"joint-approval", "window"}, Group, "may_start", _alone),
        ("window", set(), Group, "in_window", lambda *_: True),
        ("late-start", {"lost-approval"}, Town, "may_start", lambda *_: False),
        ("lost-approval", {"late-start"}, Town, "may_start", lambda *_: False),
        ("domain-overlap", {"machine-overlap"}, Group, "is_free_for", lambda *_: True),
        ("machine-overlap", {"domain-overlap"}, Group, "is_free_for", lambda *_: True),
        ("short-notice", set(), Town, "notice", lambda *_: 60),
    ],
)
def test_the_judge_accuses_badly_planned_work(
    rule: str,
    others: set[str],
    where: type,
    name: str,
    rash: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(where, name, rash)
    for seed in range(40):
        found = {finding.rule for finding in judge(Town(seed).run(400).records).findings}
        assert found <= {rule, *others}
        if rule in found:
            return
    pytest.fail("not accused")


def test_the_order_of_lines_does_not_matter() -> None:
    records = Town(2).run(600).records
    Random(2).shuffle(records)
    assert judge(records).ok
