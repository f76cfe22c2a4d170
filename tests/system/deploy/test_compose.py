"""The compose files, as far as they can be tried without an engine: their commands and networks."""

from __future__ import annotations

import contextlib
import ipaddress
import sys
from pathlib import Path
from typing import Any

import yaml

from forewarn.service.fleet import read as fleetfile
from helpers.netns import METADATA_ADDRESS, Namespace, needs_root
from helpers.paths import ROOT

COMPOSE = ROOT / "deploy" / "compose"
NAME = (
    f"http://{METADATA_ADDRESS}/metadata/instance/compute/name?api-version=2021-02-01&format=text"
)


def _read(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((COMPOSE / name).read_text())
    return read


def test_the_service_is_there_for_whoever_shares_its_namespace(tmp_path: Path) -> None:
    """Its command, as it stands there, with no more rights than it is given there."""
    needs_root()
    services = _read("compose.yaml")["services"]
    assert services["app"]["network_mode"] == "service:forewarn"
    made = services["forewarn"]
    rights = ",".join(f"+{name.lower()}" for name in made["cap_add"])
    confined = ["setpriv", f"--bounding-set=-all,{rights}", "--inh-caps=-all"]
    command = [word.replace("/tmp/", f"{tmp_path}/") for word in made["entrypoint"]]
    env = {
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "XDG_RUNTIME_DIR": str(tmp_path),
    }
    with contextlib.closing(Namespace("pod")) as pod:
        service = pod.popen([*confined, *command], env=env)
        assert service.line().startswith("ready ")
        check = made["healthcheck"]["test"]
        assert check[0] == "CMD"
        pod.run(check[1:], env=env)
        asked = pod.run(["curl", "--silent", "--header", "Metadata:true", NAME])
        assert asked.stdout == "web_0"


def test_every_machine_on_the_bridge_is_one_of_the_fleet() -> None:
    made = _read("bridge.yaml")
    services, (place,) = made["services"], made["networks"]["metadata"]["ipam"]["config"]
    subnet = ipaddress.ip_network(place["subnet"])
    addresses = {
        name: service["networks"]["metadata"]["ipv4_address"] for name, service in services.items()
    }
    assert addresses.pop("forewarn") == METADATA_ADDRESS
    assert place["gateway"] not in {METADATA_ADDRESS, *addresses.values()}
    fleet = fleetfile.parse((COMPOSE / "fleet.yaml").read_text())
    assert {machine.name: machine.addresses[0] for machine in fleet.machines} == addresses
    for address in (*addresses.values(), METADATA_ADDRESS, place["gateway"]):
        assert ipaddress.ip_address(address) in subnet
