"""Nodes on hosts, simulated: control is killed around commits, nodes at any time, and the lines
between them break, stand still and delay. Everything that guests saw is judged together."""

from __future__ import annotations

import asyncio

import pytest

from forewarn.metadata.publishing import node_upstream
from forewarn.metadata.publishing.host_nodes import READ_LEASE
from forewarn.support import guard
from forewarn.wire.versions import NEWEST
from simulation.hosts import CutOff, Hosts, HostsScript, live
from simulation.single_faults import FAULTS, SingleFaults
from simulation.unreported_moves import UnreportedMoves
from simulation.world import Kill

STEPS = 10
SEEDS = 36
LEASE = 8.0  # seconds of a lease: less than those after which a node gives up a silent line
PARTS = 2  # of the seeds, for a readable report


def lived(seed: int) -> HostsScript:
    """A life with which nothing is wrong."""
    script, findings = live(seed, Kill(at_commit=5, often=True) if seed % 3 else Kill(), STEPS)
    if findings:
        trace = "\n".join(map(str, script.sim.trace))
        pytest.fail(f"seed {seed}:\n{trace}\n" + "\n".join(f"{f.rule}: {f.text}" for f in findings))
    return script


@pytest.mark.parametrize("part", range(PARTS))
def test_no_promise_is_broken_when_control_nodes_and_connections_fail(part: int) -> None:
    lives = [lived(seed).sim for seed in range(part, SEEDS, PARTS)]
    assert sum(sim.deaths for sim in lives) > 2 * len(lives) / 3
    assert sum(sim.aparts for sim in lives) > 5 * len(lives)
    assert sum(sim.moved_polls for sim in lives) > 0  # answered on two hosts
    approved = [line for sim in lives for line in sim.trace if _is_approval(line)]
    assert len(approved) > len(lives) / 10


def test_no_promise_is_broken_when_a_host_is_cut_off_at_the_worst_moment() -> None:
    for seed in range(3):
        assert live(seed, Kill(), 4, CutOff)[1] == []


def test_no_poll_waits_for_more_than_a_second_through_a_single_fault() -> None:
    waits: dict[str, float] = {}
    for seed in range(8):
        script, findings = live(seed, Kill(), 1, SingleFaults)
        assert findings == []
        assert isinstance(script, SingleFaults)
        for fault, wait in script.waits.items():
            waits[fault] = max(wait, waits.get(fault, 0.0))
    assert len(waits) == len(FAULTS)
    assert any(waits.values())  # some were there during a change


class SilentLeader(CutOff):
    """The computer of the control node that decides has no power any more, and after its lease
    another one takes over."""

    async def run(self, steps: int) -> Hosts:
        sim, _ = self.sim, await self.begin()
        sim.addresses = 2
        node_upstream.WATCH_EVERY = 0.1  # as it is, and will be again
        for node in sim.nodes.values():
            await node.kill(silent=False)
            await node.start()
        for step in range(steps):
            await self.catch_up()
            await guard.pause(step * 0.3)
            sim.store.died.set()
            await sim.end_processes(silent=True)
            await guard.pause(LEASE)
            await sim.restart(0)
            await guard.pause(2.0)
            for node in sim.nodes.values():
                if not node.upstream._may_call.is_set():
                    sim.find("not-joined", f"{node.host} may not call control")
        sim.note("end")
        return sim


def test_nodes_leave_a_leader_that_is_silent_for_the_one_that_takes_over() -> None:
    assert live(1, Kill(), 8, SilentLeader)[1] == []


class Idle(CutOff):
    """Nothing happens for a while."""

    async def run(self, steps: int) -> Hosts:
        sim, _ = self.sim, await self.begin()
        await self.catch_up()
        await guard.pause(READ_LEASE)
        ends = [end for node in sim.nodes.values() if (end := node.end) is not None]
        before = [end.writes + end.other.writes for end in ends]
        sim.aparts = 0
        await guard.pause(steps * node_upstream.PULSE_EVERY)
        assert sim.aparts == 0  # they have kept their read leases
        self.messages = [
            end.writes + end.other.writes - count for end, count in zip(ends, before, strict=True)
        ]
        sim.note("end")
        return sim


def test_an_idle_node_costs_control_a_sign_of_life_and_an_answer_with_a_read_lease() -> None:
    script, findings = live(1, Kill(), 20, Idle)
    assert findings == []
    assert isinstance(script, Idle)
    assert script.messages
    assert all(messages <= 2 * 20 for messages in script.messages)


class JustMoved(CutOff):
    """A machine asks on its new host, whose node is not told of it before another one, which is
    silent, has no promise any more."""

    async def run(self, steps: int) -> Hosts:
        sim, _ = self.sim, await self.begin()
        sim.patience = 60.0
        sim.nodes["host-b"].link.stall("up")
        change = asyncio.ensure_future(sim.operate_reboot("sql-1"))  # noqa: TID251
        await guard.pause(0.1)
        moving = sim.surviving(sim._move("sql-0", "host-c", "operator"))
        move = asyncio.ensure_future(moving)  # noqa: TID251
        await guard.pause(0.1)
        self.answer = await sim.ask("sql-0", "GET", NEWEST.name)
        await asyncio.gather(change, move)
        sim.note("end")
        return sim


def test_a_machine_that_has_just_moved_is_answered_on_its_new_host() -> None:
    script, findings = live(1, Kill(), 1, JustMoved)
    assert findings == []
    assert isinstance(script, JustMoved)
    assert (script.answer["host"], script.answer["status"]) == ("host-c", 200)


def test_a_machine_that_was_moved_without_a_report_is_answered_before_it_is_disturbed() -> None:
    for seed in range(12):
        script, findings = live(seed, Kill(), 2, UnreportedMoves)
        assert findings == []
        assert isinstance(script, UnreportedMoves)
        assert script.unknown


def _is_approval(line: dict[str, object]) -> bool:
    return (line["kind"], line.get("method"), line.get("status")) == ("exchange", "POST", 200)


def test_the_same_seed_gives_the_same_trace() -> None:
    first, again = (
        [{**line, "answer_headers": None} for line in lived(4).sim.trace] for _ in range(2)
    )
    assert first == again
