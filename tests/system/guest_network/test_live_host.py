"""A host with running guests: the rules learn first, and then hold port by port. What guests send
to each other and to the host arrives all the while, every single packet."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.ethernet import IP, ethernet, send, udp
from helpers.guest_firewall import (
    FILLER,
    HOST,
    LIAR,
    NFT,
    PEER,
    RULES,
    SIX,
    VICTIM,
    dropped,
    ear,
    knock,
    let_in,
    mac_of,
    needs_rules,
    nft,
    three_guests,
    until_dropped,
)
from helpers.netns import METADATA_ADDRESS, Lab, Namespace
from helpers.waiting import until

EAR = 4077
UNKNOWN = LIAR  # runs on the host, and is not in the inventory
INVENTORY = [
    {"name": "web_0", "addresses": [VICTIM, SIX[VICTIM]]},
    {"name": "web_1", "addresses": [PEER, SIX[PEER]]},
]


class Talk:
    """Packets from one to another, one after the other; each must arrive before the next."""

    def __init__(self, sender: Namespace, receiver: Namespace, address: str, port: int) -> None:
        self._to = (address, port)
        self._ear = ear(receiver, port, address)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._mouth = sender.call(socket.socket, family, socket.SOCK_DGRAM)
        self._stop = threading.Event()
        self.arrived = 0
        self.lost = 0

    def run(self) -> None:
        with self._ear as receiver, self._mouth:
            while not self._stop.is_set():
                self._mouth.sendto(b"%d" % self.arrived, self._to)
                try:
                    assert receiver.recv(100) == b"%d" % self.arrived
                except TimeoutError:
                    self.lost += 1
                    return
                self.arrived += 1

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    needs_rules()
    with three_guests() as lab:
        yield lab


class Operator:
    """What an operator of the host does, as docs/operate/networking.md has it."""

    def __init__(self, lab: Lab, room: Path) -> None:
        self.lab, self.ports, self.inventory = lab, room / "ports", room / "machines.json"
        self.inventory.write_text(json.dumps(INVENTORY))
        self._filler = f"'{sys.executable}' '{FILLER}'"

    def write(self, *lines: str) -> None:
        self.ports.write_text("\n".join([f"host {HOST} {SIX[HOST]} fe80::1", *lines, ""]))

    def load_rules_and_ports(self) -> None:
        self._run(f"{{ cat '{RULES}'; {self._filler} {self.ports}; }} | {NFT} -f -")

    def fill(self) -> None:
        self._run(f"{self._filler} {self.ports} --machines {self.inventory} | {NFT} -f -")

    def run_unit(self, directory: Path) -> None:
        path = f"PATH='{FILLER.parent}':{NFT.parent}:$PATH"
        self._run(f"{path} FOREWARN_PORTS_DIRECTORY={directory} forewarn-ports")

    def learned(self) -> list[str]:
        path = f"PATH={NFT.parent}:$PATH"
        output = self._run(f"{path} {self._filler} --learned --machines {self.inventory}")
        return output.splitlines()

    def line(self, address: str, machine: str) -> str:
        return f"{self.lab.ports[address]} {mac_of(self.lab.guests[address])} {machine}"

    def _run(self, command: str) -> str:
        return self.lab.host.run(["sh", "-c", command]).stdout


def talks(lab: Lab) -> list[Talk]:
    victim, peer, unknown = (lab.guests[a] for a in (VICTIM, PEER, UNKNOWN))
    return [
        Talk(victim, peer, PEER, EAR),
        Talk(unknown, victim, VICTIM, EAR + 1),
        Talk(victim, unknown, UNKNOWN, EAR + 2),
        Talk(peer, lab.host, HOST, EAR + 3),
        Talk(unknown, lab.host, SIX[HOST], EAR + 4),
    ]


def test_guests_that_run_lose_nothing_while_the_rules_learn_and_then_hold(
    lab: Lab, tmp_path: Path
) -> None:
    operator = Operator(lab, tmp_path)
    all_talks = talks(lab)
    with contextlib.ExitStack() as talking:
        for talk in all_talks:
            talking.enter_context(talk.going_on())
        until(lambda: all(talk.arrived for talk in all_talks))

        operator.write("learn")
        operator.load_rules_and_ports()  # step 1: no inventory, no service, nobody registered
        more(all_talks)
        assert set(dropped(lab.host)) == {"learned"}

        learned = operator.learned()
        known = [operator.line(VICTIM, "web_0"), operator.line(PEER, "web_1")]
        assert [line for line in learned if not line.startswith("#")] == known
        port, mac = lab.ports[UNKNOWN], mac_of(lab.guests[UNKNOWN])
        (strange,) = [line for line in learned if line.startswith("#")]
        assert strange.startswith(f"# {port} {mac} uses {UNKNOWN}")
        assert "inventory" in strange

        operator.write("learn", known[0])  # port by port
        operator.fill()
        more(all_talks)
        operator.write("learn", *known, operator.line(UNKNOWN, "not-in-the-inventory"))
        operator.fill()
        more(all_talks)
        for _ in range(20):  # loaded again: what was registered, and that it learns, stays
            nft(lab, "-f", RULES)
        more(all_talks)
    assert [talk.lost for talk in all_talks] == [0] * len(all_talks)
    assert set(dropped(lab.host)) == {"learned"}

    # Who is held is held, and protected from those who are only watched.
    for liar in (PEER, UNKNOWN):
        guest = lab.guests[liar]
        lie = udp((VICTIM, EAR), (HOST, EAR), b"as the victim")
        frame = ethernet(mac_of(guest), mac_of(lab.host, "br0"), IP, lie)
        nft(lab, "reset", "counters")
        send(guest, frame)
        until_dropped(lab.host, "forged_ip" if liar == PEER else "claimed_elsewhere")

    # The endpoint is for those who are registered.
    with lab.host.call(socket.create_server, (METADATA_ADDRESS, 80)):
        with knock(lab.guests[VICTIM], (METADATA_ADDRESS, 80)) as knocking:
            assert let_in(knocking)
        nft(lab, "reset", "counters")
        with knock(lab.guests[UNKNOWN], (METADATA_ADDRESS, 80)):
            until_dropped(lab.host, "unvouched")

    # Without the line `learn`, nobody passes who is not registered.
    operator.write(*known)
    operator.fill()
    nft(lab, "reset", "counters")
    with knock(lab.guests[UNKNOWN], (VICTIM, EAR)):
        until_dropped(lab.host, "forged_mac")

    # As forewarn-ports.service runs it: what a program lists becomes the file, and then the rules.
    program = tmp_path / "list-ports"
    program.write_text(f"#!/bin/sh\necho host {HOST}\necho learn\n")
    program.chmod(0o755)
    operator.run_unit(tmp_path)
    assert operator.ports.read_text() == f"host {HOST}\nlearn\n"
    assert "goto learning" in nft(lab, "list", "map", "bridge", "forewarn", "unregistered")
    program.write_text("#!/bin/sh\necho nonsense\n")
    with pytest.raises(AssertionError, match="forewarn-guests: "):
        operator.run_unit(tmp_path)
    assert operator.ports.read_text() == f"host {HOST}\nlearn\n"
    assert "goto learning" in nft(lab, "list", "map", "bridge", "forewarn", "unregistered")


def more(all_talks: list[Talk]) -> None:
    """Wait until some more packets of each have arrived, or one was lost."""
    before = [talk.arrived for talk in all_talks]
    until(
        lambda: (
            any(talk.lost for talk in all_talks)
            or all(talk.arrived > b + 5 for talk, b in zip(all_talks, before, strict=True))
        )
    )
