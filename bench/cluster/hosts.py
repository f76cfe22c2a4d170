"""Hosts with nodes: which machines are where, certificates of both sides, and `forewarn node`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from math import gcd
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from bench.platform.world import address
from bench.poll.processes import Failed, pipe, running
from forewarn.core import Machine
from forewarn.core.commands import Define
from forewarn.core.fleet import GroupKind, Host
from forewarn.node.config import Address, NodeConnections, Tls
from forewarn.service.fleet.build import Fleet
from helpers.certificates import Authority

EACH = 10  # machines of a group, on as many hosts if there are
EVERYWHERE = "everywhere"  # a group with a machine on each host
ALONE = "alone"  # a host, and the only group on it
LOOPBACK = "127.0.0.1"


class Layout(msgspec.Struct, frozen=True):
    machines: int
    hosts: int

    @property
    def names(self) -> list[str]:
        """Hosts, without the one that is alone."""
        return [f"h{n}" for n in range(self.hosts)]

    @property
    def groups(self) -> list[str]:
        """Groups, without the special ones."""
        return [f"set{n}" for n in range(self.machines // EACH)]

    def fleet(self) -> Fleet:
        numbers = count()
        placed = self._placed()
        groups = {
            name: _group(name, [(next(numbers), next(placed)) for _ in range(EACH)])
            for name in self.groups
        }
        groups[EVERYWHERE] = _group(EVERYWHERE, [(next(numbers), host) for host in self.names])
        groups[ALONE] = _group(ALONE, [(next(numbers), ALONE)])
        return Fleet(groups, tuple(Host(name=name) for name in (*self.names, ALONE)))

    def _placed(self) -> Iterator[str]:
        """As many machines on each host, and ever other hosts beside each other."""
        steps = (n for n in count(1) if gcd(n, self.hosts) == 1)
        for step in steps:
            yield from (f"h{n * step % self.hosts}" for n in range(self.hosts))


def _group(name: str, machines: Sequence[tuple[int, str]]) -> Define:
    return Define(
        kind=GroupKind.SCALE_SET,
        machines=tuple(
            Machine(name=f"{name}_{n}", addresses=(address(number),), host=host)
            for n, (number, host) in enumerate(machines)
        ),
    )


class Certificates:
    """In a directory, for processes that are told where it is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def issue(self, hosts: Sequence[str]) -> None:
        self.directory.mkdir()
        authority = Authority(self.directory)
        for name in (LOOPBACK, *hosts):
            into = self.of(name)
            authority.issue(name if name == LOOPBACK else f"forewarn:node:{name}", into=into)

    def of(self, name: str) -> Tls:
        return Tls(self.directory / f"{name}.pem", self.directory / f"{name}.key")

    @property
    def authority(self) -> Path:
        return self.directory / "authority.pem"

    def lines(self, port: int) -> NodeConnections:
        return NodeConnections(Address(LOOPBACK, port), self.of(LOOPBACK), self.authority)


class Node(msgspec.Struct, frozen=True):
    url: str  # for guests
    pid: int


@contextlib.contextmanager
def node(
    host: str, certificates: Certificates, control: int, room: Path, *, core: int
) -> Iterator[Node]:
    """`forewarn node`, which answers guests on loopback."""
    directory = room / f"node-{host}"
    directory.mkdir()
    pair = certificates.of(host)
    settings = {
        "host": host,
        "control": f"{LOOPBACK}:{control}",
        "certificate": str(pair.certificate),
        "key": str(pair.key),
        "authority": str(certificates.authority),
        "journal": str(directory),
        "metadata": f"{LOOPBACK}:0",
        "status": "",
    }
    config = directory / "node.toml"
    config.write_text("".join(f'{key} = "{value}"\n' for key, value in settings.items()))
    argv = [sys.executable, "-m", "forewarn", "node", "--config", str(config)]
    with running(argv, core=core, log=directory / "log", pipes=True) as process:
        _, ready, urls = pipe(process.stdout).readline().partition("ready ")
        if not ready:
            raise Failed(f"a node did not start:\n{(directory / 'log').read_text()[-2000:]}")
        yield Node(msgspec.json.decode(urls)["metadata"], process.pid)
