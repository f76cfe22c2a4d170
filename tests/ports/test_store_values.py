"""Whatever is stored comes back as it was, and in the same order, from every engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.core import EventType, GroupKind, Machine, World, decide
from forewarn.core import commands as c
from forewarn.core.access import Role, Token
from forewarn.core.changes import Changes
from forewarn.core.fleet import Host
from forewarn.core.halts import Halt
from forewarn.core.history import seen
from forewarn.core.registry import (
    PLACED,
    ConfigurationPut,
    HaltPut,
    HaltReleased,
    HostPut,
    HostRemoved,
    TokenPut,
)
from forewarn.core.time import DAY, SECOND
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.store import Batch, Entry, Store
from forewarn.store.port import (
    HistoryQuery,
    Key,
    MachineSighting,
    NotifyPosition,
    PollSightings,
    States,
    Work,
)
from helpers.engines import ENGINES, Reopen, live, state

AT = 1_700_000_000_000_000
BEYOND_32_BITS = 2**31 + 5
EVERY = HistoryQuery(limit=1_000_000)

# Of every plane; controls, the ends of ranges, and what is special in SQL, JSON and patterns.
PLANES = "".join(chr(plane << 16 | 0x1F600 & 0xFFFF) for plane in range(17) if plane)
EDGES = "\x01\t\n\x7f\x85\u0301\u2028\ud7ff\ue000\ufeff\ufffd\uffff\U00010000\U0010ffff"
SPECIAL = "'\"`\\%_*?;:x$1{}[],NULL--%s%(s)s\\u0000é e\u0301 ß İ"
TEXT = PLANES + EDGES + SPECIAL

BY_NAME: list[Callable[[str], HistoryQuery]] = [
    lambda name: HistoryQuery(machine=name),
    lambda name: HistoryQuery(group=name),
    lambda name: HistoryQuery(host=name),
    lambda name: HistoryQuery(event=name),
]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    """Opens the same state again each time it is called."""
    return state(request.param, tmp_path)


def doing(group: str, *commands: c.Command, at: int = AT) -> Work:
    def work(states: States) -> Batch:
        entries: list[Entry] = []
        for command in commands:
            decision = decide(states[group], command, World(at=at))
            if isinstance(decision, Changes) and decision.items:
                entries.append(Entry(group, decision.items))
        return Batch(at, 0, tuple(entries))

    return work


def putting(*puts: Any, at: int = AT) -> Work:
    return lambda _: Batch(at, 0, puts=puts)


def define(*names: str, **fields: Any) -> c.Define:
    machines = tuple(Machine(name=name, **fields) for name in names)
    return c.Define(force=True, kind=GroupKind.SCALE_SET, machines=machines)


def reboot(id: str, *machines: str, cause: str = "", by: str = "test") -> c.Raise:
    return c.Raise(id=id, type=EventType.REBOOT, machines=machines, by=by, cause=cause)


async def answers(store: Store) -> dict[str, Any]:
    """Everything that a store can be asked."""
    records = await store.history(EVERY)
    ids = sorted({record.event for record in records if record.event})
    groups = sorted(store.groups)
    return {
        "groups": dict(store.groups),
        "registry": store.registry,
        "seq": store.seq,
        "commits": [commit async for commit in store.commits(0)],
        "history": _without_numbers(records),
        "by number": _without_numbers(await store.history(HistoryQuery(after_seq=0, limit=10**6))),
        "of groups": {
            name: _without_numbers(await store.history(HistoryQuery(group=name, limit=10**6)))
            for name in groups
        },
        "past": await store.past_events(limit=10**6),
        "ended": await store.ended_events(ids),
        "ids": await store.event_ids("", 10**6),
        "by cause": await store.events_by_cause(""),
        "sightings": await store.sightings(),
        "notify": await store.notify_positions(),
    }


def _without_numbers(records: Any) -> list[Any]:
    """Numbers grow, but may leave some out."""
    return [msgspec.structs.replace(record, seq=0) for record in records]


def test_any_text_comes_back_as_it_was(engine: Reopen) -> None:
    key = Key(TEXT, TEXT + "key", TEXT)
    sighting = MachineSighting(polled=AT, version=TEXT, polls=1)
    position = NotifyPosition(name=TEXT, origin=TEXT, after=1)
    token = Token(id=TEXT, name=TEXT, role=Role.VIEWER, digest=TEXT, created_at=AT, created_by=TEXT)
    halt = Halt(id=TEXT, by=TEXT, at=AT, note=TEXT, label=TEXT)
    window = MaintenanceConfiguration(name=TEXT, select=TEXT)
    before: dict[str, Any] = {}

    async def store_it(store: Store) -> None:
        tagged = define(TEXT, host=TEXT, tags={TEXT: TEXT}, labels={TEXT: TEXT}, computer_name=TEXT)
        await store.transact(doing(TEXT, tagged))
        await store.transact(doing(TEXT, c.Enable()))
        await store.transact(doing(TEXT, reboot(TEXT, TEXT, cause=TEXT, by=TEXT)))
        await store.transact(doing(TEXT, reboot("over", TEXT, cause="other", by=TEXT)))
        event = store.groups[TEXT].events[0]
        prepare = c.Prepare(id=TEXT, machine=TEXT, ready=True, note=TEXT)
        await store.transact(doing(TEXT, prepare))
        await store.transact(doing(TEXT, c.Approve(ids=(TEXT,), by=TEXT)))
        outcome = c.Failed(TEXT, TEXT, TEXT)
        await store.transact(doing(TEXT, c.Answer(id=TEXT, attempt=1, outcome=outcome)))
        await store.transact(doing(TEXT, c.Cancel(id="over", by=TEXT)))
        puts = (
            HostPut(Host(name=TEXT, labels={TEXT: TEXT}), TEXT),
            HaltPut(halt, PLACED, TEXT),
            HaltReleased("other", TEXT, TEXT, TEXT),
            TokenPut(token, "created", TEXT),
            ConfigurationPut(window, TEXT),
        )
        await store.transact(putting(*puts))
        await store.transact(lambda _: Batch(AT, key=key, notes=(TEXT,), about=(TEXT,)))
        await store.save_answer(key, 200, TEXT.encode())
        await store.save(
            PollSightings(
                seen={TEXT: 1},
                machines={TEXT: sighting},
                used={TEXT: AT},
                firsts=(seen(event, TEXT, AT),),
            )
        )
        await store.save_notify_position(position)
        before.update(await answers(store))

    async def read_it(store: Store) -> None:
        assert await answers(store) == before
        assert store.registry.halts[TEXT] == halt
        assert store.registry.configurations[TEXT] == window
        found = await store.sightings()
        assert (found.seen, found.machines, found.used) == ({TEXT: 1}, {TEXT: sighting}, {TEXT: AT})
        assert await store.notify_positions() == {TEXT: position}
        keyed = await store.keyed_request(TEXT, TEXT + "key")
        assert keyed is not None
        assert (keyed.key, keyed.answer) == (key, TEXT.encode())
        assert await store.keyed_request(TEXT, TEXT) is None
        assert [event.id for event in await store.events_by_cause(TEXT)] == [TEXT]
        assert [event.id for event in await store.past_events(group=TEXT)] == ["over"]
        assert await store.event_ids(TEXT, 5) == [TEXT]
        for of in BY_NAME:
            assert await store.history(of(TEXT))
            assert not await store.history(of(TEXT[:-1]))
        records = await store.history(HistoryQuery(event=TEXT))
        assert {TEXT} == {record.output for record in records if record.output}
        assert any(record.note == TEXT for record in records)

    live(engine, store_it, read_it)


def test_the_history_of_several_groups_is_read(engine: Reopen) -> None:
    names = ["web", "sql", "a,b", '{"web"}', "NULL", "it's", "back\\slash", TEXT]

    async def body(store: Store) -> None:
        for name in names:
            await store.transact(doing(name, define(f"machine of {name}")))
        await store.transact(putting(HostPut(Host(name="h1"))))  # which is about no group

        async def of(*groups: str) -> list[str]:
            records = await store.history(HistoryQuery(groups=groups, limit=1_000))
            assert [record.seq for record in records] == sorted(record.seq for record in records)
            return list(dict.fromkeys(record.group for record in records))

        assert await of() == []
        assert await of("sql") == ["sql"]
        assert await of("sql", "web", "nobody", "web") == ["web", "sql"]
        assert await of("a", "b") == []
        assert await of(*names[2:]) == names[2:]
        assert await of(*(f"group-{n}" for n in range(40_000)), "NULL") == ["NULL"]
        both = HistoryQuery(group="web", groups=("web", "sql"))
        assert {record.group for record in await store.history(both)} == {"web"}
        assert not await store.history(HistoryQuery(group="web", groups=("sql",)))

    live(engine, body)


def test_numbers_may_be_larger_than_32_bits(engine: Reopen) -> None:
    key = Key("alice", "key", "digest")
    sighting = MachineSighting(
        polled=AT, version="2020-07-01", polls=BEYOND_32_BITS, ignored=2 * BEYOND_32_BITS
    )
    position = NotifyPosition(name="n", origin="o", after=BEYOND_32_BITS, skipped=BEYOND_32_BITS)

    async def count(store: Store) -> None:
        await store.transact(doing("web", define("web_0")))
        store.skip_numbers(BEYOND_32_BITS)
        await store.transact(lambda _: Batch(AT, lost=2**52, key=key))
        await store.save(
            PollSightings(
                seen={"web": 2**53}, machines={"web_0": sighting}, served_until=2**50, lost=2**52
            )
        )
        await store.save_notify_position(position)

    async def look(store: Store) -> None:
        last = BEYOND_32_BITS + 2
        assert store.seq == last
        assert [commit.seq async for commit in store.commits(0)] == [1, last]
        assert [commit.seq async for commit in store.commits(last - 1)] == [last]
        keyed = await store.keyed_request("alice", "key")
        assert keyed is not None
        assert keyed.seq == last
        found = await store.sightings()
        assert (found.seen, found.machines) == ({"web": 2**53}, {"web_0": sighting})
        assert (found.served_until, found.lost) == (2**50, 2**52)
        assert await store.notify_positions() == {"n": position}
        assert not await store.history(HistoryQuery(after_seq=BEYOND_32_BITS))
        assert not await store.history(HistoryQuery(after=(AT, BEYOND_32_BITS)))
        await store.transact(doing("web", c.Enable(), at=AT + DAY))
        assert store.seq == last + 1
        await store.prune(AT + 1, lambda _: False)
        assert [commit.seq async for commit in store.commits(0)] == [last + 1]
        assert await store.keyed_request("alice", "key") is None

    live(engine, count, look)


# As bytes these are in this order; by the rules of a language they would not be.
ORDERED = ["A", "AB", "A_1", "Aa", "B", "Z", "a", "ab", "a\u0301", "z", "Ä", "\uffff", "\U0001f600"]


def test_ids_are_found_by_their_beginning_in_the_order_of_their_bytes(engine: Reopen) -> None:
    shuffled = random.Random(1).sample(ORDERED, len(ORDERED))

    async def body(store: Store) -> None:
        await store.transact(doing("web", define("web_0")))
        for id in shuffled:
            await store.transact(doing("web", reboot(id, "web_0", cause=f"for {id}")))
        for id in shuffled[::2]:
            await store.transact(doing("web", c.Cancel(id=id, by="test")))
        assert await store.event_ids("", 100) == ORDERED
        assert await store.event_ids("A", 100) == ["A", "AB", "A_1", "Aa"]
        assert await store.event_ids("A", 2) == ["A", "AB"]
        assert await store.event_ids("A_", 100) == ["A_1"]
        assert await store.event_ids("\uffff", 100) == ["\uffff"]
        assert await store.event_ids("\U0001f600", 100) == ["\U0001f600"]
        over = [event.id for event in await store.past_events()]
        assert over == shuffled[::2][::-1]  # raised last, not the last in order
        for mark, id in enumerate(over):
            rest = await store.past_events(before=id)
            assert [event.id for event in rest] == over[mark + 1 :]
        active = shuffled[1]  # of one that is not over, too
        rest = await store.past_events(before=active)
        assert [event.id for event in rest] == shuffled[:1]
        by_cause = [event.id for event in await store.events_by_cause("for A")]
        assert by_cause == [id for id in shuffled if id.startswith("A")]

    live(engine, body)


def test_machines_and_events_keep_their_order_when_they_change(engine: Reopen) -> None:
    kept: dict[str, Any] = {}

    async def change(store: Store) -> None:
        await store.transact(doing("web", define("m0", "m1", "m2")))
        await store.transact(doing("sql", define("s0")))
        for id in ("E2", "E0", "E1"):
            await store.transact(doing("web", reboot(id, "m0", "m1")))
        changed = define("m0", "m1", "m2", labels={"new": "1"})
        await store.transact(doing("web", changed))
        await store.transact(doing("web", c.Enable()))
        await store.transact(doing("web", c.Approve(ids=("E0",), by="m0")))
        # In one batch: a machine leaves and returns, another one changes its group.
        await asyncio.gather(
            store.transact(doing("web", define("m1", "m2"))),
            store.transact(doing("sql", define("s0", "m0"))),
            store.transact(doing("sql", define("s0"))),
            store.transact(doing("web", define("m1", "m2", "m0"))),
        )
        await store.transact(doing("web", define("m3", "m2", "m0", "m1")))
        kept.update(await answers(store))

    async def look(store: Store) -> None:
        assert await answers(store) == kept
        assert [event.id for event in store.groups["web"].events] == ["E2", "E0", "E1"]

    live(engine, change, look)


def test_history_keeps_its_order_when_records_come_late_or_twice(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        await store.transact(doing("web", define("web_0", "web_1")))
        for n in range(4):
            await store.transact(doing("web", reboot(f"E{n}", "web_0"), at=AT + n * SECOND))
        events = store.groups["web"].events
        for by in ("web_0", "web_1"):  # the second time, nothing is written
            firsts = tuple(seen(event, by, AT + 1) for event in reversed(events))
            await store.save(PollSightings(seen={}, firsts=firsts))
        await store.transact(doing("web", c.Cancel(id="E0", by="test"), at=AT + 9 * SECOND))
        by_number = await store.history(HistoryQuery(after_seq=0))
        texts = [f"{record.what.value} {record.event}" for record in by_number]
        raised = [f"raised E{n}" for n in range(4)]
        shown = [f"seen E{n}" for n in (3, 2, 1, 0)]
        assert texts[3:] == [*raised, *shown, "withdrawn E0"]
        numbers = [record.seq for record in by_number]
        assert numbers == sorted(set(numbers))
        by_time = await store.history(HistoryQuery())
        texts = [f"{record.what.value} {record.event}" for record in by_time]
        assert texts[3:] == ["raised E0", *shown, *raised[1:], "withdrawn E0"]
        assert await store.history(HistoryQuery(newest_first=True)) == list(reversed(by_time))

    live(engine, body)


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "memory"], indirect=True)
@pytest.mark.parametrize("seed", range(2))
def test_the_same_life_leads_to_the_same_answers(engine: Reopen, seed: int) -> None:
    """Commits alone and together, of several groups, with events that end, hosts that come and go,
    and pruning in between, compared with the engine that has no rows."""
    expected: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []

    def life(answered: list[dict[str, Any]]) -> Callable[[Store], Awaitable[None]]:
        async def live(store: Store) -> None:
            await _a_random_life(store, random.Random(seed), answered)

        return live

    async def look(store: Store) -> None:
        found.append(await answers(store))

    memory = state("memory", Path())
    live(memory, life(expected))
    live(engine, life(found), look)
    for one, other in zip(found, [*expected, expected[-1]], strict=True):
        assert {name: one[name] for name in one if one[name] != other[name]} == {
            name: other[name] for name in other if one[name] != other[name]
        }
    assert max(len(answered["history"]) for answered in expected) > 20


async def _a_random_life(
    store: Store, chance: random.Random, answered: list[dict[str, Any]]
) -> None:
    groups = ["web", "sql", TEXT]
    at, number = AT, 0

    def work() -> Work:
        nonlocal number
        number += 1
        group = chance.choice(groups)
        active = [event.id for event in store.groups[group].events] if number > 3 else []
        match chance.randrange(7):
            case 0:
                count = chance.randint(1, 4)
                names = chance.sample([f"{group}_{n}" for n in range(5)], count)
                return doing(group, define(*names), at=at)
            case 1:
                host = f"h{chance.randrange(3)}"
                gone = chance.random() < 0.3
                put = HostRemoved(host) if gone else HostPut(Host(name=host), f"by {number}")
                return putting(put, at=at)
            case 2 if active:
                return doing(group, c.Cancel(id=chance.choice(active), by="test"), at=at)
            case 3:
                key = Key("alice", f"key {chance.randrange(5)}", f"digest {number}")
                return lambda _: Batch(at, key=key)
            case _:
                machine = f"{group}_{chance.randrange(5)}"
                raised = reboot(f"{chance.randrange(16):X}-{number}", machine, cause=f"c{number}")
                return doing(group, raised, at=at)

    for group in groups:
        await store.transact(doing(group, define(*(f"{group}_{n}" for n in range(5)))))
    for step in range(25):
        at += chance.randrange(10) * SECOND
        works = [work() for _ in range(chance.choice([1, 1, 5]))]
        await asyncio.gather(*(store.transact(each) for each in works))
        if step % 3 == 2:
            polled = MachineSighting(polled=at, version="2020-07-01", polls=step)
            names = [machine.name for group in store.groups.values() for machine in group.machines]
            machines = dict.fromkeys(sorted(names)[: chance.randrange(6)], polled)
            await store.save(PollSightings(seen={"web": at}, machines=machines))
        if step % 8 == 7:
            cutoff = at - chance.randrange(30) * SECOND
            await store.prune(cutoff, lambda event: event.id.startswith("0"))
        if step % 5 == 4:
            answered.append(await answers(store))
