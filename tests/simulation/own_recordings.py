"""What a service and nodes on hosts, which are killed now and then, have recorded themselves: their
last lines died with them. Any of these recordings can be cut off earlier."""

from __future__ import annotations

from typing import Any

from simulation.hosts import HostNode, Hosts, HostsScript
from simulation.script import Script
from simulation.world import Kill, Killed, Simulation

Line = dict[str, Any]

WORLD = "world"  # records what is done to machines, and is never killed
BEGINS = "begins"  # marks the first line of a recorder in each of its lives


def recorder(line: Line) -> str:
    """Return the host of the node that has recorded a line; nothing: control, or all in one."""
    return WORLD if line["kind"] == "impact" else line.get("host", "")


class OwnRecording(Simulation):
    def follow(self) -> None:
        self._reported = len(self.disk.commits)  # nobody records what was committed before
        super().follow()

    async def start(self) -> None:
        """Record from when it serves, as the service does, beginning with what holds then."""
        before = len(self.trace)
        await super().start()
        mine = [line for line in self.trace[before:] if not recorder(line)]
        self.trace[before:] = [line for line in self.trace[before:] if recorder(line)]
        self._continue("")
        self._recorder.state(self.store, self.at)
        self._recorder._planned([e for g in self.store.groups.values() for e in g.events], self.at)
        again = [line for line in mine if line["kind"] in ("up", "unreachable")]
        self.trace += [{**line, "t": self.stamp()} for line in again]

    def _continue(self, name: str) -> None:
        """Record that a recorder begins, and was cut off before if it was killed."""
        last = next((line for line in reversed(self.trace) if recorder(line) == name), None)
        if last is None:
            self.trace.append({"kind": BEGINS, "t": self.stamp(), "host": name})
        else:
            t = self.stamp() if last["kind"] == "down" else last["t"]
            self.trace.append(gap(name, t, self.stamp()))

    async def ask(self, machine: str, method: str, version: str, body: bytes = b"") -> Any:
        try:
            return await super().ask(machine, method, version, body)
        except Killed:
            self.trace.pop()  # nobody was there to record it
            raise


class OwnScript(Script):
    def __init__(self, seed: int, kill: Kill) -> None:
        super().__init__(seed, kill)
        self.sim: Simulation = OwnRecording(seed, kill)


class OwnHosts(OwnRecording, Hosts):
    def __init__(self, seed: int, kill: Kill) -> None:
        super().__init__(seed, kill)
        self._known_lives: dict[str, int] = {}

    def note(self, kind: str, **fields: Any) -> None:
        if kind == "disconnected":
            host = fields["host"]
            if self._known_lives.get(host) != self.nodes[host].lives:
                self._known_lives[host] = self.nodes[host].lives
                self._continue(host)
                super().note("up", host=host)
        super().note(kind, **fields)

    async def ask(self, machine: str, method: str, version: str, body: bytes = b"") -> Any:
        record = await Hosts.ask(self, machine, method, version, body)
        if not record.pop("recorded", False) and self.trace[-1]["kind"] == "exchange":
            self.trace.pop()
        return record

    async def _exchange(self, node: HostNode, machine: str, record: Line, body: bytes) -> str:
        answer = await super()._exchange(node, machine, record, body)
        record["recorded"] = not node.died.is_set()
        return answer


class OwnHostsScript(HostsScript):
    def __init__(self, seed: int, kill: Kill) -> None:
        super().__init__(seed, kill)
        self.sim = OwnHosts(seed, kill)


def gap(name: str, t: float, until: float | None) -> Line:
    return {"kind": "gap", "t": t, "until": until, **({"host": name} if name else {})}


def cut_at(trace: list[Line], index: int) -> list[Line]:
    """Return recordings without the lines of one recorder, from this one on to the end of the life
    that it is in."""
    name = recorder(trace[index])
    mine = [number for number, line in enumerate(trace) if recorder(line) == name]
    begins = [number for number in mine if trace[number]["kind"] == "gap"]
    end = next((number for number in begins if number > index), None)
    last = max((number for number in mine if number < index), default=None)
    if name == WORLD or last is None:
        return trace
    until = None if end is None else trace[end]["until"]
    lost = {number for number in mine if index <= number <= (len(trace) if end is None else end)}
    rest = [line for number, line in enumerate(trace) if number not in lost]
    return [*rest, gap(name, trace[last]["t"], until)]
