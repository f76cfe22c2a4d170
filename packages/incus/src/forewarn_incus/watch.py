"""What the servers know of their instances, for the inventory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from forewarn.drivers.port import MachineState, Seen, SeenMachine
from forewarn_incus.api import ALONE, ERROR, RUNNING, STATE_FROZEN, STOPPED, UUID, Instance

# Where an instance belongs, in its configuration: `incus config set web-0 user.forewarn-group=web`.
GROUP, DOMAIN = "user.forewarn-group", "user.forewarn-update-domain"
SPOT, NAME = "user.forewarn-spot", "user.forewarn-name"

_STATES = {
    RUNNING: MachineState.RUNNING,
    STATE_FROZEN: MachineState.PAUSED,
    STOPPED: MachineState.STOPPED,
    ERROR: MachineState.CRASHED,
}
_UNITS = (
    {"": 1}
    | {
        unit + suffix: base**power
        for power, unit in enumerate("kMGT", 1)
        for suffix, base in (("B", 1000), ("iB", 1024))
    }
    | {"B": 1, "KiB": 1024}
)


def seen(
    instances: Sequence[Instance], members: set[str], alone: str, whole: bool
) -> Iterator[Seen]:
    """Yield what is on each member that is online; `alone` is the host of a server without a
    cluster. Of other members nothing is known, nor of instances of which their member has not said
    anything. The copies that moves make are no machines."""
    for host in sorted(members) if members else [alone]:
        location = host if members else ALONE
        here = [one for one in instances if one.location == location and not one.is_temporary]
        machines = tuple(_machine(one) for one in here if not one.is_unknown)
        yield Seen(host=host, machines=machines, whole=whole and len(machines) == len(here))


def _machine(instance: Instance) -> SeenMachine:
    networks = ((instance.state and instance.state.network) or {}).values()
    domain = instance.configured(DOMAIN)
    return SeenMachine(
        name=instance.configured(NAME) or instance.name,
        vm_id=instance.configured(UUID),
        state=_STATES.get(instance.status, MachineState.RUNNING),  # such as Starting, for a moment
        reason="" if instance.status in (RUNNING, STATE_FROZEN, STOPPED) else instance.status,
        addresses=tuple(a.address for n in networks for a in n.addresses if a.scope == "global"),
        ports={n.host_name: n.hwaddr for n in networks if n.host_name and n.hwaddr},
        memory=_bytes(instance.configured("limits.memory")),
        cpus=_count(instance.configured("limits.cpu")),
        group=instance.configured(GROUP),
        update_domain=int(domain) if domain.isdecimal() else None,
        spot=instance.configured(SPOT) in ("true", "1", "yes", "on"),
    )


def _bytes(text: str) -> int:
    """Return a size such as 512MiB; 0 for what is not one, such as 50 %."""
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text)
    return int(match[1]) * _UNITS.get(match[2], 0) if match else 0


def _count(text: str) -> int:
    """Return a number of processors: `2`, or a set of them such as `0-1,3`."""
    if text.isdecimal():
        return int(text)
    total = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return 0
        total += int(last or first) - int(first) + 1
    return total
