"""Two processes with the certificate of one host, such as that of a clone of its machine, or of
somebody who has stolen it.

Each of them takes the other's place, so that both come back again and again; a process that was
started again does not, since the former one has ended. As long as there are two, neither is to be
served: of nodes, guests of the one would be taken for informed when the other has confirmed a
change; of driver processes, the one would say what has become of the machines of the other.
"""

from __future__ import annotations

import msgspec

COMEBACKS = 2  # of a process after another one; a message of one that has ended may arrive late
REMEMBERED = 30.0  # seconds after its last hello; a node without a connection sends one a second
MOST = 8  # processes of one host that are remembered


class _Process(msgspec.Struct, frozen=True):
    last: float  # when it has sent a hello
    comebacks: int  # how often it has done so after another process had done so


class Twins:
    def __init__(self) -> None:
        # By host and process: the one that has sent the last hello is the last.
        self._processes: dict[str, dict[str, _Process]] = {}

    def greeted(self, host: str, instance: str, at: float) -> bool:
        """Note a hello from a process. Return whether it is one of two of its host."""
        known = self._processes.get(host, {})
        processes = {n: p for n, p in known.items() if at - p.last < REMEMBERED}
        latest = next(reversed(processes), instance)
        before = processes.pop(instance, None)
        comebacks = before.comebacks + (latest != instance) if before and processes else 0
        processes[instance] = _Process(at, comebacks)
        while len(processes) > MOST:
            del processes[next(iter(processes))]
        self._processes[host] = processes
        return len(processes) > 1 and any(p.comebacks >= COMEBACKS for p in processes.values())
