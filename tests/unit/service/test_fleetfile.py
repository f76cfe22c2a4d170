"""The fleet file: what it means, what it fills in, and how it says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.core import EventType, GroupKind
from forewarn.node.dev import on_loopback, sample_fleet
from forewarn.service.fleetfile import FleetError, load, parse

WHOLE = """
location: north
hosts: [a, {name: b}]
groups:
  - name: web
    kind: scale-set
    zone: "2"
    policy: {user_event_limit: 10, auto_approve: [Reboot]}
    machines:
      - {name: web_0, address: 10.0.0.10, update_domain: 3, host: a, spot: true, tags: {k: v}}
      - {name: web_1, addresses: [10.0.0.11, "fd00::11"], host: b, computer_name: box}
  - name: jump
    kind: standalone
    location: south
    machines: [{name: jump}]
"""


def test_a_whole_fleet_is_read() -> None:
    fleet = parse(WHOLE)
    assert fleet.hosts == ("a", "b")
    web = fleet.groups["web"]
    assert web.kind is GroupKind.SCALE_SET
    assert web.policy.user_event_limit == 10
    assert web.policy.auto_approve == (EventType.REBOOT,)
    assert (web.place.location, web.place.zone, web.place.scale_set) == ("north", "2", "web")
    first, second = web.machines
    assert (first.addresses, first.update_domain, first.spot) == (("10.0.0.10",), 3, True)
    assert second.addresses == ("10.0.0.11", "fd00::11")
    assert fleet.groups["jump"].place.location == "south"


def test_machines_that_name_no_domain_are_spread_over_five() -> None:
    machines = "".join(f"      - {{name: m{n}}}\n" for n in range(7))
    fleet = parse(f"groups:\n  - name: g\n    kind: availability-set\n    machines:\n{machines}")
    assert [m.update_domain for m in fleet.machines] == [0, 1, 2, 3, 4, 0, 1]


def test_ids_are_derived_from_names_so_that_they_stay() -> None:
    first, again = (parse(WHOLE).machines[0].vm_id for _ in range(2))
    assert first == again != parse(WHOLE).machines[1].vm_id


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Expected `object`"),
        ("groups: [", "while parsing"),
        ("groups: []\nfoo: 1", "unknown field `foo`"),
        ("groups: [{name: g, kind: heap, machines: []}]", "there are standalone, cloud-service"),
        ("groups: [{name: g, kind: standalone, machines: []}]", "exactly one machine"),
        (
            "groups: [{name: g, kind: cloud-service, machines: [{name: a}, {name: a}]}]",
            "machine 'a' stands twice",
        ),
        (
            "groups: [{name: g, kind: cloud-service, machines: [{name: a, adress: 1.2.3.4}]}]",
            "did you mean 'address'?",
        ),
        (
            "groups: [{name: g, kind: cloud-service, machines: [{name: a, address: 1.2.3}]}]",
            "'1.2.3' is not an IP address",
        ),
        (
            "groups: [{name: g, kind: cloud-service, machines: [{name: a, host: h}]}]",
            "host 'h' is not under hosts",
        ),
        (
            "groups: [{name: g, kind: cloud-service, machines: [{name: a, update_domain: -1}]}]",
            "update_domain is from 0 to 999",
        ),
        (
            "groups: [{name: g, kind: cloud-service, machines: [{name: 'a b'}]}]",
            "a name has 1 to 80 letters",
        ),
        (
            "groups: [{name: g, kind: scale-set, machines: [{name: other_0}]}]",
            "is named 'g_0'",
        ),
        (
            "groups: [{name: g, kind: cloud-service, scale_set: s, machines: [{name: a}]}]",
            "scale_set goes with kind scale-set",
        ),
        (
            "groups: [{name: g, kind: cloud-service, machines: [{name: a}],"
            " policy: {user_event_limit: 0}}]",
            "at least 1",
        ),
        (
            "groups: [{name: g, kind: cloud-service, machines:"
            " [{name: a, address: 10.0.0.1}, {name: b, address: 10.0.0.1}]}]",
            "address '10.0.0.1' stands twice",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, says: str) -> None:
    with pytest.raises(FleetError) as refusal:
        parse(text)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_placement_group_has_at_most_a_hundred_machines() -> None:
    machines = ", ".join(f"{{name: s_{n}}}" for n in range(101))
    with pytest.raises(FleetError, match="at most 100 machines"):
        parse(f"groups: [{{name: s, kind: scale-set, machines: [{machines}]}}]")


def test_an_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match=r"none\.yaml: "):
        load(tmp_path / "none.yaml")


def test_the_sample_fleet_has_something_of_everything() -> None:
    fleet = sample_fleet()
    kinds = {define.kind for define in fleet.groups.values()}
    assert kinds == {
        GroupKind.STANDALONE,
        GroupKind.AVAILABILITY_SET,
        GroupKind.CLOUD_SERVICE,
        GroupKind.SCALE_SET,
    }
    assert len(fleet.hosts) == 2
    assert [m.update_domain for m in fleet.groups["sql"].machines] == [0, 1, 2]
    assert [m.spot for m in fleet.groups["web"].machines].count(True) == 2


@pytest.mark.parametrize("text", ["[", "{a: ", "- ", "? "])
def test_a_file_that_nests_without_end_is_refused(text: str) -> None:
    with pytest.raises(FleetError, match="nested too deeply"):
        parse(text * 1_000_000)


def test_on_loopback_every_machine_has_an_address_of_its_own() -> None:
    machines = "".join(f"      - {{name: m{n}}}\n" for n in range(600))
    fleet = parse(f"groups:\n  - name: g\n    kind: availability-set\n    machines:\n{machines}")
    addresses = [m.addresses[0] for m in on_loopback(fleet).machines]
    assert len(set(addresses)) == 600
    assert addresses[0] == "127.0.1.1"
    assert all(a.startswith("127.0.") and not a.endswith((".0", ".255")) for a in addresses)
