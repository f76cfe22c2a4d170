"""Addresses that no machine of a real fleet can have are refused, with their lines."""

from __future__ import annotations

import pytest

from forewarn.service.fleet import edit
from forewarn.service.fleet.addresses import guest_addresses
from forewarn.service.fleet.read import Fleet, FleetError, parse
from forewarn.service.indexes.machines import MachineIndex
from forewarn.store import MemoryStore

FLEET = """
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: a, address: 127.0.0.1}
      - {name: b, address: 10.0.0.2}
      - {name: c, addresses: [10.0.0.3, "::1"]}
      - {name: d, address: 169.254.169.254}
      - {name: e, address: 169.254.0.9}
      - {name: f, address: "::ffff:127.0.0.9"}
      - {name: g, address: 224.0.0.1}
      - {name: h, address: 0.0.0.0}
      - {name: i, address: 255.255.255.255}
      - {name: j, address: 10.0.0.2}
"""


def test_all_invalid_guest_addresses_are_reported_at_once() -> None:
    with pytest.raises(FleetError) as refused:
        parse(FLEET, addresses=guest_addresses(["169.254.0.9"]))
    lines = refused.value.named("fleet.yaml").splitlines()
    expected = {
        6: "'127.0.0.1' is a loopback address",
        8: "'::1' is a loopback address",
        9: "'169.254.169.254' is the address of the endpoint itself",
        10: "'169.254.0.9' is the address of the endpoint itself",
        11: "'127.0.0.9' is a loopback address",
        12: "'224.0.0.1' is not the address of a single machine",
        13: "'0.0.0.0' is not the address of a single machine",
        14: "'255.255.255.255' is not the address of a single machine",
        15: "address '10.0.0.2' occurs twice: machine 'b' has it",
    }
    assert len(lines) == len(expected)
    for line, (number, says) in zip(lines, expected.items(), strict=True):
        assert line.startswith(f"fleet.yaml:{number}: groups[0].machines[")
        assert says in line


def test_addresses_of_a_single_group_or_machine_are_checked_too() -> None:
    problem = guest_addresses(["169.254.169.254"])
    text = '{"kind": "standalone", "machines": [{"name": "a", "address": "127.0.0.1"}]}'
    with pytest.raises(FleetError, match="loopback"):
        edit.put_group("web", text, addresses=problem)(Fleet({}))
    fleet = parse("groups: [{name: web, kind: standalone, machines: [{name: a}]}]")
    text = '{"group": "web", "address": "169.254.169.254"}'
    index = MachineIndex(MemoryStore())
    with pytest.raises(FleetError, match="the endpoint itself"):
        edit.put_machine("a", text, index, addresses=problem)(fleet)


@pytest.mark.parametrize("endpoint", ["127.0.0.1", "::1", "localhost"])
def test_guests_of_an_endpoint_on_loopback_are_on_loopback(endpoint: str) -> None:
    problem = guest_addresses([endpoint]).problem
    assert (problem("127.0.0.1"), problem("127.0.0.7"), problem("::1")) == ("", "", "")
    assert "the endpoint itself" in problem("169.254.169.254")


TENANTS = """
hosts: [h1, h2]
groups:
  - name: one
    kind: standalone
    machines: [{name: a, address: 10.0.0.5, host: h1}]
  - name: two
    kind: standalone
    machines: [{name: b, address: 10.0.0.5, host: h2}]
"""


def test_where_each_host_has_a_node_machines_on_different_hosts_may_have_the_same_address() -> None:
    per_host = guest_addresses([], per_host=True)
    assert len(parse(TENANTS, addresses=per_host).groups) == 2
    with pytest.raises(FleetError, match=r"occurs twice: machine 'a'"):
        parse(TENANTS)
    with pytest.raises(FleetError, match=r"occurs twice on host 'h1'.*'a'"):
        parse(TENANTS.replace("host: h2", "host: h1"), addresses=per_host)
