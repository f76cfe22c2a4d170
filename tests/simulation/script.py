"""What happens in a simulated run: a seeded mix of guests, operators, time and trouble."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from forewarn.core import EventType, Source, Status
from forewarn.core.time import DAY, HOUR, MINUTE, SECOND
from forewarn.core.windows.model import Blackout, MaintenanceConfiguration
from forewarn.core.windows.syntax import parse_window
from forewarn.service.platform.configurations import Configurations
from forewarn.service.platform.hosts import MAINTENANCE_MODES
from forewarn.wire.requests import write_approval
from forewarn.wire.versions import NEWEST, VERSIONS
from simulation.world import FLEET, GROUP_OF, MACHINES, Kill, Killed, Simulation

NAMES = list(MACHINES)
HOSTS = [host.name for host in FLEET.hosts]
TYPES = [*EventType, EventType.REBOOT, EventType.FREEZE]


class Script:
    def __init__(self, seed: int, kill: Kill) -> None:
        self.sim = Simulation(seed, kill)
        self.known: dict[str, list[str]] = {}  # ids each group has been shown

    async def run(self, steps: int) -> Simulation:
        sim = self.sim
        await sim.start()
        for machine in NAMES:
            await self.survive(self.poll(machine))
        for _ in range(steps):
            await self.survive(self.something())
        for _ in range(40):  # let everything that is under way come to its end
            await self.survive(self.let_go())
            await self.survive(sim.advance(HOUR))
            for machine in ("jumpbox", "sql-0", "FrontEnd_IN_0", "web_0"):
                await self.survive(self.poll(machine))
            if not sim.node.platform.active():
                break
        sim.note("end")
        self.left_over = sim.node.platform.active()
        with contextlib.suppress(Killed):  # it may still die on the way out
            await sim.surviving(sim.node.__aexit__(None, None, None))
        return sim

    async def survive(self, work: Any) -> None:
        sim = self.sim
        try:
            await work
        except Killed:
            await sim.end_processes()
            away = sim.chance.choice([0, SECOND, MINUTE, 20 * MINUTE, 2 * HOUR])
            await sim.restart(away)

    async def let_go(self) -> None:
        """As operators do in the end: a host is repaired if there is none to move to, halts are
        released, windows are no longer needed, and the maintenance of a host to which a machine has
        come that was not warned is called off."""
        node = self.sim.node
        hosts = self.sim.store.registry.hosts.values()
        if not any(host.healthy and not node.hosts.events_about(host.name) for host in hosts):
            for host in [host.name for host in hosts if not host.healthy][:1]:
                await self.operate(node.hosts.repair(host, "operator"))
        for halt in list(self.sim.store.registry.halts):
            await self.operate(node.halts.release(halt, "operator"))
        for name in list(self.sim.store.registry.configurations):
            await self.operate(self.configurations.remove(name, "operator"))
        for host in list(self.sim.node.host_index.uninformed):
            planned = self.sim.node.hosts.events_about(host)
            joint = next((event.id for event in planned if event.joint is not None), None)
            if joint is not None:
                await self.operate(self.sim.node.platform.cancel(joint, "operator"))

    async def something(self) -> None:
        sim, chance = self.sim, self.sim.chance
        weights = [40, 20, 14, 5, 4, 12, 2, 2, 4, 2, 2, 5, 5, 2, 3, 4, 4, 6, 5]
        match chance.choices(range(len(weights)), weights=weights)[0]:
            case 0:
                await self.poll(chance.choice(NAMES))
            case 1:
                await self.approve(chance.choice(NAMES))
            case 2:
                await self.schedule()
            case 3:
                type = chance.choice([EventType.REBOOT, EventType.REDEPLOY])
                await self.operate(
                    sim.node.platform.user_maintenance(chance.choice(NAMES), type, "user")
                )
            case 4:
                active = sim.node.platform.active()
                if active:
                    id = chance.choice(active).id
                    await self.operate(sim.node.platform.cancel(id, "operator"))
            case 5:
                await sim.advance(
                    chance.choice([SECOND, 30 * SECOND, 3 * MINUTE, 10 * MINUTE, 16 * MINUTE])
                )
            case 6:
                await sim.step(chance.choice([3 * SECOND, HOUR, DAY]))
            case 7:
                await sim.surviving(sim.node.poll_index.save(sim.node.writer.now()))

            case 8:
                gone = [m.name for g in sim.store.groups.values() for m in g.machines if m.gone]
                if gone:
                    await self.operate(sim.node.platform.restore(chance.choice(gone), "operator"))
            case 9:
                await self.delete_two()
            case 10:
                await self.interrupt()
            case 11:
                await self.maintain_a_host()
            case 12:
                await self.lose_a_machine()
            case 13:
                await self.turn_on_a_host()
            case 14:
                await self.halt()
            case 15:
                for halt in list(sim.store.registry.halts)[:1]:
                    await self.operate(sim.node.halts.release(halt, "operator"))
            case 16:
                await self.postpone()
            case 17:
                machine = chance.choice(NAMES)
                await self.operate(
                    sim.node.platform.record_move(machine, chance.choice(HOSTS), "operator")
                )
            case 18:
                await self.change_windows()

    @property
    def configurations(self) -> Configurations:
        return Configurations(self.sim.store, self.sim.node.writer)

    async def halt(self) -> None:
        """The whole fleet, a group, or some machines of it."""
        scopes: list[dict[str, Any]] = [{}, {"groups": ["web", "shop"]}, {"label": "tier=data"}]
        scope = self.sim.chance.choice(scopes)
        await self.operate(self.sim.node.halts.place(by="operator", **scope))

    async def postpone(self) -> None:
        sim, chance = self.sim, self.sim.chance
        coming = [e for e in sim.node.platform.active() if e.status is Status.SCHEDULED]
        if coming:
            event = chance.choice(coming)
            later = chance.choice([10 * MINUTE, HOUR, 3 * HOUR])
            await self.operate(sim.node.platform.postpone(event.id, "tenant", duration=later))

    async def change_windows(self) -> None:
        """A window, a blackout, none of them any more, or an operator who does not care."""
        sim, chance = self.sim, self.sim.chance
        name, select = chance.choice([("nights", ""), ("data", "tier=data"), ("web", "tier=web")])
        match chance.randrange(4):
            case 0:
                hour = sim.at // HOUR % 24 + chance.randrange(2)
                window = parse_window(f"{hour % 24:02}:10-{(hour + 1) % 24:02}:40")
                wanted = MaintenanceConfiguration(name=name, select=select, windows=(window,))
                await self.operate(self.configurations.set(wanted, "operator"))
            case 1:
                begins = sim.at + chance.choice([0, 10 * MINUTE])
                blackout = Blackout(begins=begins, ends=begins + chance.choice([HOUR, 6 * HOUR]))
                wanted = MaintenanceConfiguration(name=name, select=select, blackouts=(blackout,))
                await self.operate(self.configurations.set(wanted, "operator"))
            case 2:
                await self.operate(self.configurations.remove(name, "operator"))
            case 3:
                active = sim.node.platform.active()
                if active:
                    id = chance.choice(active).id
                    await self.operate(
                        sim.node.platform.approve(id, "operator", ignore_windows=True)
                    )

    async def delete_two(self) -> None:
        """Two machines of one group, due together, and only one of the deletes approved."""
        sim, chance = self.sim, self.sim.chance
        group = chance.choice(["sql", "shop", "web"])
        alive = [m.name for m in sim.store.groups[group].machines if m.alive]
        if len(alive) < 2:
            return
        when = sim.at + chance.choice([5 * MINUTE, 15 * MINUTE])
        for machine in chance.sample(alive, 2):
            await self.operate(
                sim.node.platform.schedule(
                    type=EventType.TERMINATE,
                    machines=(machine,),
                    by="operator",
                    source=Source.PLATFORM,
                    not_before=when,
                )
            )
        asking = chance.choice(alive)
        ids = await self.poll(asking, NEWEST.name)
        if len(ids) >= 2:
            await sim.ask(asking, "POST", NEWEST.name, write_approval([chance.choice(ids[-2:])]))
        await self.poll(asking, NEWEST.name)
        await sim.advance(chance.choice([SECOND, MINUTE]))
        await self.poll(asking, NEWEST.name)

    async def maintain_a_host(self) -> None:
        """Several groups at once, some of which approve; emptied hosts are back in service."""
        sim, chance = self.sim, self.sim.chance
        for cordoned in sim.node.hosts.hosts():
            if cordoned.cordoned:
                await self.operate(sim.node.hosts.put_back(cordoned.name, "operator"))
        host = chance.choice(HOSTS)
        await self.operate(
            sim.node.hosts.maintain(
                host,
                chance.choice(list(MAINTENANCE_MODES.values())),
                "operator",
                evacuate=chance.random() < 0.2,
            )
        )
        if chance.random() < 0.3:  # a machine comes there behind our back
            await self.operate(
                sim.node.platform.record_move(chance.choice(NAMES), host, "operator")
            )
        for machine in sim.node.hosts.machines_on(host):
            ids = await self.poll(machine.name, NEWEST.name)
            if ids and chance.random() < 0.7:
                await sim.ask(machine.name, "POST", NEWEST.name, write_approval(ids[-1:]))
                await self.poll(machine.name, NEWEST.name)

    async def lose_a_machine(self) -> None:
        sim, chance = self.sim, self.sim.chance
        machine, removals = chance.choice(NAMES), sim.node.removals
        match chance.randrange(3):
            case 0:
                await self.operate(removals.evict(machine, "operator"))
            case 1:
                await self.operate(removals.delete(machine, "operator"))
            case 2:
                await self.operate(removals.fail(machine, EventType.REDEPLOY, "operator"))
        await self.poll(machine, NEWEST.name)

    async def turn_on_a_host(self) -> None:
        """Hardware that is about to fail, fails, or is well again."""
        sim, chance = self.sim, self.sim.chance
        host, hosts = chance.choice(HOSTS), sim.node.hosts
        match chance.randrange(4):
            case 0:
                await self.operate(hosts.degrade(host, "operator", notice=2 * HOUR))
            case 1:
                await self.operate(hosts.fail(host, "operator"))
            case _:
                await self.operate(hosts.repair(host, "operator"))

    async def interrupt(self) -> None:
        """Shortly before something is due nobody serves any more, or the clock jumps."""
        sim, chance = self.sim, self.sim.chance
        coming = [e for e in sim.node.platform.active() if e.status is Status.SCHEDULED]
        first = min(coming, key=lambda event: event.not_before, default=None)
        if first is None:
            return
        await sim.advance(max(0, first.not_before - 20 * SECOND - sim.at))
        if chance.random() < 0.5:
            await sim.step(chance.choice([3 * SECOND, HOUR]))
        else:
            await sim.stop()
            await sim.restart(chance.choice([SECOND, 15 * SECOND, MINUTE, 2 * HOUR]))
        asking = chance.choice([name for name in NAMES if GROUP_OF[name] == first.group])
        for wait in (5, 25, 40):
            await sim.advance(wait * SECOND)
            await self.poll(asking)

    async def poll(self, machine: str, version: str | None = None) -> list[str]:
        """The ids that were shown."""
        if version is None:
            version = self.sim.chance.choice([*VERSIONS, *[NEWEST] * 8]).name
        answer = await self.sim.ask(machine, "GET", version)
        if answer["status"] != 200:
            return []
        ids = [event["EventId"] for event in json.loads(answer["answer"])["Events"]]
        self.known.setdefault(GROUP_OF[machine], []).extend(ids)
        return ids

    async def approve(self, machine: str) -> None:
        chance = self.sim.chance
        ids = self.known.get(GROUP_OF[machine])
        if ids:
            some = chance.sample(ids[-6:], chance.randint(1, min(2, len(ids[-6:]))))
            await self.sim.ask(machine, "POST", "2020-07-01", write_approval(some))

    async def schedule(self) -> None:
        sim, chance = self.sim, self.sim.chance
        type = chance.choice(TYPES)
        machines: tuple[str, ...] = (chance.choice(NAMES),)
        if chance.random() < 0.2:
            machines = ("FrontEnd_IN_0", "Worker_IN_0")
        await self.operate(
            sim.node.platform.schedule(
                type=type,
                machines=machines,
                by="operator",
                source=Source.PLATFORM,
                notice=chance.choice([None, None, 20 * MINUTE, 2 * HOUR]),
                description=chance.choice(["", "Host server is undergoing maintenance."]),
            )
        )

    async def operate(self, work: Any) -> None:
        await self.sim.surviving(work)
        await self.sim.surviving(self.sim.node.ledger.idle())
