"""Where machines go that move at the same time: every host counts what is on its way to it."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from forewarn.core import Event, EventType, Refused
from forewarn.core.changes import MachinePut
from forewarn.core.fleet import Size
from forewarn.core.rollouts.selection import Selection
from forewarn.drivers.port import Failed, Performed, Task
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.service.indexes.placement import targets_of
from forewarn.service.platform.hosts import LIVE_MIGRATION
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import Batch, Entry
from forewarn.testing import RefusedError, Service
from helpers.control_api import ask

HERD = f"""
hosts: [h1, h2, h3, h4, h5, h6]
groups:
{
    chr(10).join(
        f"  - {{name: s{n}, kind: standalone, machines: [{{name: s{n}, host: h1}}]}}"
        for n in range(20)
    )
}
  - name: big
    kind: availability-set
    machines: [{", ".join(f"{{name: big-{n}, update_domain: 0, host: h1}}" for n in range(12))}]
"""
TWO_DOMAINS = """
hosts: [h1, h2, h3]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web-0, update_domain: 0, host: h1}
      - {name: web-1, update_domain: 0, host: h1}
      - {name: web-2, update_domain: 1, host: h1}
      - {name: web-3, update_domain: 1, host: h2}
"""


ONE_EMPTY_HOST = """
hosts: [h1, h2, h3]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web-0, update_domain: 0, host: h1}
      - {name: web-1, update_domain: 1, host: h1}
  - name: db
    kind: availability-set
    machines:
      - {name: db-0, update_domain: 0, host: h3}
      - {name: db-1, update_domain: 0, host: h3}
      - {name: db-2, update_domain: 0, host: h3}
"""


def on_hosts(service: Service) -> Counter[str]:
    groups = service._session.node.store.groups.values()
    return Counter(m.host for group in groups for m in group.machines if m.alive)


def active(service: Service) -> list[Event]:
    return list(service._session.call(service._session.node.platform.active))


def coming(service: Service) -> Counter[str]:
    return Counter(host for event in active(service) for host in targets_of(event).values())


def drain(service: Service, host: str) -> None:
    service.host(host).maintain("live-migration", evacuate=True)


def test_machines_that_leave_a_host_together_are_spread_over_the_others() -> None:
    with Service(HERD) as service:
        drain(service, "h1")
        service.clock.advance("16m")
        assert coming(service) == {"h2": 7, "h3": 7, "h4": 6, "h5": 6, "h6": 6}
        assert on_hosts(service) == {"h1": 32}
        service.clock.advance("1h")
        assert on_hosts(service) == {"h2": 7, "h3": 7, "h4": 6, "h5": 6, "h6": 6}
        assert coming(service) == {}
        service.host("h2").fail()
        service.clock.advance("1h")
        assert sorted(on_hosts(service).values()) == [8, 8, 8, 8]


def test_machines_do_not_follow_each_other_from_one_failed_host_to_the_next() -> None:
    with Service(HERD) as service:
        service.host("h1").fail()
        assert sorted(coming(service).values()) == [6, 6, 6, 7, 7]
        service.host("h2").fail()  # before any machine has arrived there
        service.clock.advance("1h")
        assert on_hosts(service)["h2"] == 0
        assert sorted(on_hosts(service).values()) == [8, 8, 8, 8]


def test_a_driver_is_informed_that_a_host_has_failed() -> None:
    asked: list[tuple[str, bool]] = []

    class Asked(SimulatedDriver):
        async def perform(self, task: Task) -> Performed:
            asked.extend((machine.host, machine.host_failed) for machine in task.machines)
            return await super().perform(task)

    with Service(TWO_DOMAINS, driver=Asked(ImpactJournal(), lambda duration: duration)) as service:
        service["web-3"].restart()
        service.clock.advance("1h")
        service.host("h1").fail()
    assert set(asked) == {("h2", False), ("h1", True)}


def test_update_domains_that_move_together_go_to_different_hosts() -> None:
    with Service(TWO_DOMAINS) as service:
        service.host("h1").fail()
        service.clock.advance("1h")
        machines = service._session.node.store.groups["web"].machines
        where = {machine.name: machine.host for machine in machines}
        assert where == {"web-0": "h3", "web-1": "h3", "web-2": "h2", "web-3": "h2"}


def test_update_domains_do_not_meet_on_the_emptiest_host() -> None:
    with Service(ONE_EMPTY_HOST) as service:
        service.host("h1").fail()
        service.clock.advance("1h")
        machines = service._session.node.store.groups["web"].machines
        assert {machine.name: machine.host for machine in machines} == {
            "web-0": "h2",
            "web-1": "h3",
        }


class Refusing(SimulatedDriver):
    """Refuses some hosts as targets."""

    def __init__(self, *hosts: str) -> None:
        super().__init__(ImpactJournal(), lambda duration: duration)
        self.refused = hosts
        self.given: list[str] = []

    async def perform(self, task: Task) -> Performed:
        hosts = [machine.target for machine in task.machines]
        self.given += hosts
        if refused := tuple(host for host in hosts if host in self.refused):
            return Failed("its CPUs are too old", unsuitable=refused)
        return await super().perform(task)


def test_another_target_is_chosen_instead_of_one_that_the_driver_refuses() -> None:
    driver = Refusing("h2", "h3")
    with Service(HERD, driver=driver) as service:
        event = service.redeploy("s0")
        service.clock.advance("6s")
        assert "moves no machine to h2, h3" in event.explain()
        service.clock.advance("2h")
        assert dict.fromkeys(driver.given) == dict.fromkeys(["h2", "h3", "h4"])
        assert on_hosts(service)["h4"] == 1


def test_a_machine_stays_until_there_is_a_host_that_can_take_it() -> None:
    with Service(TWO_DOMAINS, driver=Refusing("h2", "h3")) as service:
        drain(service, "h1")
        service.clock.advance("1h")
        notes = {event.attempt.note for event in active(service) if event.attempt is not None}
        assert notes == {"no other host can take web-0 now", "no other host can take web-1 now"}
        assert coming(service) == {}
        assert on_hosts(service) == {"h1": 3, "h2": 1}
        recorded = service._session.node.store.seq
        service.clock.advance("7d")
        assert service._session.node.store.seq == recorded  # waiting is not recorded


ONE_PLACE = """
hosts: [{name: h1}, {name: h2, capacity: {machines: 0}}]
groups:
  - {name: a, kind: standalone, machines: [{name: a, host: h1}]}
  - {name: b, kind: standalone, machines: [{name: b, host: h1}]}
"""


def attempts(service: Service) -> list[int]:
    found = [event.attempt for event in active(service)]
    return sorted(attempt.number for attempt in found if attempt is not None)


def make_room(service: Service, machines: int) -> None:
    fleet = ONE_PLACE.replace("machines: 0", f"machines: {machines}")
    done = service._session.run(service._session.node.fleet_apply.text(fleet, by="operator"))
    assert not isinstance(done, Refused)


def test_machines_that_wait_for_a_host_move_one_by_one_as_there_is_room() -> None:
    disk = Disk()
    with Service(ONE_PLACE, store=MemoryStore(disk)) as service:
        service.host("h1").fail()
        service.clock.advance("1h")
        assert attempts(service) == [1, 1]
        event = active(service)[0]
        hold = service._session.run(service._session.node.platform.explain(event.id))
        assert not isinstance(hold, Refused)
        assert "it waits for a host: no other host can take" in hold.message
    with Service(ONE_PLACE, store=MemoryStore(disk)) as service:  # which goes on waiting
        service.clock.advance("1h")
        assert attempts(service) == [1, 1]
        make_room(service, 1)
        service.clock.advance("5s")
        assert on_hosts(service) == {"h1": 1, "h2": 1}
        assert attempts(service) == [1]
        make_room(service, 2)
        service.clock.advance("1h")
        assert on_hosts(service) == {"h2": 2}
        assert service._session.node.scheduler.next_due() is None


def unequal(machines: int) -> str:
    """A host to drain, and others of very different sizes."""
    sizes = ["{memory: 4096, cpus: 2}", "{memory: 16384, cpus: 4}", "{memory: 1024, cpus: 1}"]
    rooms = [1024, 256, 512, 64, 512, 128]
    hosts = [
        f"  - {{name: h{n}, capacity: {{memory: {room * 1024}, cpus: {room}, machines: 100}}}}"
        for n, room in enumerate(rooms, start=1)
    ]
    groups = [
        f"  - {{name: s{n}, kind: standalone, machines:"
        f" [{{name: s{n}, host: h0, size: {sizes[n % 3]}}}]}}"
        for n in range(machines - 60)
    ]
    members = ", ".join(
        f"{{name: web-{n}, update_domain: {n % 3}, host: h0, size: {sizes[n % 3]}}}"
        for n in range(60)
    )
    web = f"  - {{name: web, kind: availability-set, machines: [{members}]}}"
    return "\n".join(["hosts:", "  - h0", *hosts, "groups:", *groups, web])


def overrun(service: Service) -> list[str]:
    """Return the hosts with more on them, and on their way there, than they can hold."""
    store = service._session.node.store
    held: dict[str, list[int]] = {name: [0, 0, 0] for name in store.registry.hosts}
    for group in store.groups.values():
        machines = {machine.name: machine for machine in group.machines if machine.alive}
        places = [(machine, machine.host) for machine in machines.values()]
        for event in group.events:
            places += [(machines[name], host) for name, host in targets_of(event).items()]
        for machine, host in places:
            taken = (1, machine.size.memory, machine.size.cpus)
            held[host] = [have + more for have, more in zip(held[host], taken, strict=True)]
    full = []
    for name in store.registry.hosts:
        capacity = store.registry.hosts[name].capacity
        limits = (capacity.machines, capacity.memory, capacity.cpus)
        if any(x is not None and y > x for x, y in zip(limits, held[name], strict=True)):
            full.append(name)
    return full


def test_no_host_is_overrun_when_200_machines_move_while_two_hosts_fail() -> None:
    with Service(unequal(200)) as service:
        found: set[str] = set()
        store = service._session.node.store
        store.on_commit(lambda *_: found.update(overrun(service)))
        drain(service, "h0")
        service.clock.advance("16m")
        assert coming(service)
        service.host("h2").fail()
        service.clock.advance("3m")
        service.host("h5").fail()
        service.clock.advance("2h")
        assert found == set()
        assert active(service) == []
        where = on_hosts(service)
        assert sum(where.values()) == 200
        assert set(where) == {"h1", "h3", "h4", "h6"}


GROWING = """
hosts: [{name: h1}, {name: h2, capacity: {memory: 10}}]
groups:
  - {name: a, kind: standalone, machines: [{name: a, host: h1, size: {memory: 4}}]}
  - {name: b, kind: standalone, machines: [{name: b, host: h1, size: {memory: 5}}]}
"""


def test_a_machine_that_grows_on_its_way_is_counted_as_what_it_has_become() -> None:
    with Service(GROWING) as service:
        service.redeploy("a")
        service.clock.advance("6s")
        assert coming(service) == {"h2": 1}
        grown = GROWING.replace("memory: 4", "memory: 8")
        done = service._session.run(service._session.node.fleet_apply.text(grown, by="operator"))
        assert not isinstance(done, Refused)
        assert service._session.node.host_index.placement.held("h2").memory == 8
        service.host("h1").fail()
        service.clock.advance("1h")
        assert on_hosts(service) == {"h1": 1, "h2": 1}
        assert not overrun(service)


def test_a_machine_that_grows_is_counted_by_what_is_decided_in_the_same_commit() -> None:
    with Service(GROWING) as service:
        service.redeploy("a")
        service.clock.advance("6s")
        node = service._session.node
        machine = node.store.groups["a"].machines[0]
        grown = MachinePut(msgspec.structs.replace(machine, size=Size(memory=8)))

        async def at_once() -> None:
            now = node.writer.now()
            batch = Batch(now.at, now.lost, (Entry("a", (grown,)),))
            await asyncio.gather(node.store.transact(lambda _: batch), node.hosts.fail("h1", "ann"))

        service._session.run(at_once())
        assert coming(service) == {"h2": 1}
        assert not overrun(service)


FULL = """
hosts: [{name: h1}, {name: h2, capacity: {memory: 10}}, {name: h3, capacity: {machines: 1}}]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web-0, update_domain: 0, host: h1, size: {memory: 4}}
      - {name: web-1, update_domain: 0, host: h1, size: {memory: 8}}
      - {name: web-2, update_domain: 0, host: h1, size: {memory: 11}}
      - {name: web-3, update_domain: 0, host: h1, size: {memory: 12}}
"""


def test_the_machines_of_a_failed_host_for_which_there_is_room_do_not_wait_for_the_others() -> None:
    """The largest goes first: to the host that limits only the number of machines."""
    with Service(FULL) as service:
        (event,) = service.host("h1").fail()
        service.clock.advance("1h")
        assert on_hosts(service) == {"h1": 2, "h2": 1, "h3": 1}
        machines = {m.name: m.host for m in service._session.node.store.groups["web"].machines}
        assert (machines["web-3"], machines["web-1"]) == ("h3", "h2")
        assert "no other host can take web-0, web-2 now" in event.explain()
        assert not overrun(service)


def test_a_host_is_not_drained_if_machines_fit_nowhere_and_each_is_named() -> None:
    with Service(FULL) as service:
        with pytest.raises(RefusedError) as refusal:
            drain(service, "h1")
        message = str(refusal.value)
        assert "machines web-0, web-2 cannot move" in message
        assert "2 machines can move: 1 to h3, 1 to h2" in message
        assert active(service) == []


def test_a_drain_says_where_machines_can_go() -> None:
    with Service(HERD) as service:
        hosts = service._session.node.hosts
        drained = hosts.maintain("h1", LIVE_MIGRATION, "ann", evacuate=True)
        outcomes = service._session.run(drained)
        assert not isinstance(outcomes, Refused)
        going = "as things are, 32 machines can move: 7 to h2, 7 to h3, 6 to h4, 6 to h5, 6 to h6"
        assert going in outcomes.notes


def test_targets_of_machines_are_shown_before_a_host_is_drained() -> None:
    for fleet, answer in (
        (HERD, "32 machines can move: 7 to h2, 7 to h3, 6 to h4, 6 to h5, 6 to h6"),
        (FULL, "machines web-0, web-2 cannot move"),
    ):
        with Service(fleet, sockets=True) as service:
            assert answer in ask(service, "GET", "/v1/hosts/h1/explain").body["if_drained"]
            assert ask(service, "GET", "/v1/hosts/h3/explain").body["if_drained"] == ""
            assert active(service) == []


def test_the_plan_of_a_rollout_says_where_machines_go_and_which_have_to_stay() -> None:
    with Service(FULL) as service:
        wanted = RolloutRequest(
            type=EventType.FREEZE, selection=Selection(hosts=("h1",)), by="ann", moves=True
        )
        planned = service._session.run(service._session.node.rollouts.plan(wanted))
        assert not isinstance(planned, Refused)
        draft, _ = planned
        (targets,) = draft.targets.values()
        assert targets == {"web-3": "h3", "web-2": "", "web-1": "h2", "web-0": ""}
