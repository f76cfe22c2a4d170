"""`forewarn serve` in the host of a lab, three guests in two groups, and what its operator types.

One of the guests, the liar, is alone in its group; the victim and the peer are in the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.endpoint import METADATA, NEWEST, approval, events
from helpers.guest_firewall import (
    FILLER,
    HOST,
    LIAR,
    NFT,
    PEER,
    REMOVE,
    RULES,
    SIX,
    VICTIM,
    mac_of,
    nft,
)
from helpers.netns import METADATA_ADDRESS, Lab, Namespace
from helpers.raw_http import RawResponse, exchange, request

CONTROL = ("127.0.0.1", 8170)
FLEET = f"""
groups:
  - name: web
    kind: scale-set
    machines:
      - {{name: web_0, addresses: [{VICTIM}, "{SIX[VICTIM]}"], update_domain: 0}}
      - {{name: web_1, addresses: [{PEER}, "{SIX[PEER]}"], update_domain: 1}}
  - name: other
    kind: standalone
    machines: [{{name: other, addresses: [{LIAR}, "{SIX[LIAR]}"]}}]
"""
NAMES = {VICTIM: "web_0", PEER: "web_1", LIAR: "other"}
POLL = request("GET", events(NEWEST), METADATA, "Connection: close")


class GuestNetwork:
    """A host that serves its three guests, and what its operator types."""

    def __init__(self, lab: Lab, room: Path) -> None:
        self.lab = lab
        self.room = room
        self.environment = {
            "FOREWARN_URL": "http://{}:{}".format(*CONTROL),
            "XDG_RUNTIME_DIR": str(room),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        (room / "fleet.yaml").write_text(FLEET)
        lines = [f"{port} {mac_of(lab.guests[a])} {NAMES[a]}" for a, port in lab.ports.items()]
        (room / "ports").write_text("\n".join([f"host {HOST} {SIX[HOST]} fe80::1", *lines]))
        self.victim, self.liar = lab.guests[VICTIM], lab.guests[LIAR]

    def serve(self, *words: str) -> None:
        files = [f"--fleet={self.room / 'fleet.yaml'}", f"--state={self.room / 'state.db'}"]
        argv = ["forewarn", "serve", *files, *words]
        assert self.lab.host.popen(argv, env=self.environment).line().startswith("ready ")

    def output(self, *words: str) -> Any:
        ran = self.lab.host.run(["forewarn", *words, "--json"], env=self.environment)
        return json.loads(ran.stdout)

    @contextlib.contextmanager
    def rules(self, rules: Path = RULES) -> Iterator[None]:
        """As docs/operate/networking.md has it. Everybody begins anew, and afterwards once more,
        with no knowledge of who is where, nor that somebody could not be found."""
        nft(self.lab, "-f", rules)
        self.fill()
        self.forget()
        nft(self.lab, "reset", "counters")
        try:
            yield
        finally:
            nft(self.lab, REMOVE)
            self.forget()

    def fill(self) -> None:
        pipe = f"'{FILLER}' '{self.room / 'ports'}' | '{NFT}' -f -"
        self.lab.host.run(["sh", "-c", pipe], env=self.environment)

    def forget(self) -> None:
        for place in (self.lab.host, *self.lab.guests.values()):
            place.run(["ip", "neigh", "flush", "all"])


def poll(
    guest: Namespace, address: str = METADATA_ADDRESS, source: str | None = None
) -> RawResponse:
    return guest.call(exchange, (address, 80), POLL, source=source)


def approve(guest: Namespace, event: str, source: str | None = None) -> RawResponse:
    asked = request("POST", events(NEWEST), METADATA, body=approval(event))
    return guest.call(exchange, (METADATA_ADDRESS, 80), asked, source=source)
