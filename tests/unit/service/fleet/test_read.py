"""The fleet file: what it means, what it fills in, and how it says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from forewarn.core import EventType, Group, GroupKind
from forewarn.core.fleet import Host
from forewarn.core.time import MINUTE
from forewarn.node.dev import on_loopback, sample_fleet
from forewarn.service.fleet.read import (
    MAX_COLLECTED,
    MAX_MISTAKES,
    FleetError,
    load,
    parse,
)

ID = "9b1f2f0e-6c0f-4c55-8a41-2f6f6cf0a1d7"
WHOLE = """
location: north
hosts: [a, {name: b, labels: {rack: r1}}]
groups:
  - name: web
    kind: scale-set
    zone: "2"
    labels: {tier: web}
    policy:
      user_event_limit: 10
      auto_approve: [Reboot]
      all_instances_down: true
      event_grid: true
      terminate_notice: PT5M
    machines:
      - {name: web_0, address: 10.0.0.10, update_domain: 3, host: a, spot: true, tags: {k: v},
         labels: {ring: canary}}
      - {name: web_1, addresses: [10.0.0.11, "fd00::11"], host: b, computer_name: box}
  - name: jump
    kind: standalone
    location: south
    machines: [{name: jump}]
"""


def test_a_whole_fleet_is_read() -> None:
    fleet = parse(WHOLE)
    assert fleet.hosts == (Host(name="a"), Host(name="b", labels={"rack": "r1"}))
    web = fleet.groups["web"]
    assert web.kind is GroupKind.SCALE_SET
    assert web.policy.user_event_limit == 10
    assert web.policy.auto_approve == (EventType.REBOOT,)
    assert web.policy.all_instances_down
    assert web.policy.event_grid
    assert web.policy.terminate_notice == 5 * MINUTE
    assert web.labels == {"tier": "web"}
    assert (web.place.location, web.place.zone, web.place.scale_set) == ("north", "2", "web")
    first, second = web.machines
    assert (first.addresses, first.update_domain, first.spot) == (("10.0.0.10",), 3, True)
    assert first.labels == {"ring": "canary"}
    assert second.addresses == ("10.0.0.11", "fd00::11")
    assert fleet.groups["jump"].place.location == "south"


def test_machines_that_name_no_domain_are_spread_over_five() -> None:
    machines = "".join(f"      - {{name: m{n}}}\n" for n in range(7))
    fleet = parse(f"groups:\n  - name: g\n    kind: availability-set\n    machines:\n{machines}")
    assert [m.update_domain for m in fleet.machines] == [0, 1, 2, 3, 4, 0, 1]


def test_ids_are_derived_from_names_so_that_they_stay() -> None:
    first, again = (parse(WHOLE).machines[0].vm_id for _ in range(2))
    assert first == again != parse(WHOLE).machines[1].vm_id


WRONG = [
    ("", "line 1: it is empty"),
    ("[]", "line 1: a fleet must be a mapping"),
    ("groups: [", "line 2: groups: not YAML: while parsing"),
    ("hosts: []", "line 1: key 'groups' is missing"),
    ("groups: []\nfoo: 1", "line 2: foo: unknown key; there are groups, hosts"),
    ("groups: []\nHosts: []", "line 2: Hosts: unknown key; did you mean 'hosts'?"),
    ("groups: []\nhosts: [a, {nam: b}]", "line 2: hosts[1].nam: unknown key; did you mean 'name'?"),
    ("groups: []\nhosts: [a,\n a]", "line 3: hosts[1]: host 'a' occurs twice"),
    (
        "groups: []\nhosts: [3]",
        "line 2: hosts[0]: expected text or a mapping, not a whole number",
    ),
    ("groups: 3", "line 1: groups: expected a list, not a whole number"),
    ("groups:\n- 3", "line 2: groups[0]: expected a mapping"),
]
WRONG_GROUPS = [
    (
        "kind: heap, machines: []",
        "groups[0].kind: unknown value 'heap'; expected one of standalone, cloud-service",
    ),
    ("kind: scaleset, machines: []", "did you mean 'scale-set'?"),
    (
        "kind: standalone, machines: []",
        "groups[0].machines: a standalone group must have exactly one machine, not 0",
    ),
    ("machines: []", "groups[0]: key 'kind' is missing"),
    (
        "kind: cloud-service, machines: []",
        "groups[0].machines: a group must have at least one machine",
    ),
    (
        "kind: cloud-service, machines: [{name: a}], policy: {auto_approve: [Reboot, Freeze]}",
        "groups[0].policy.auto_approve: auto_approve is for users' events (Reboot, Redeploy), not",
    ),
    (
        "kind: cloud-service, scale_set: s, machines: []",
        "groups[0].scale_set: is only for groups of kind scale-set",
    ),
    (
        "kind: cloud-service, machines: [], policy: {user_event_limit: 0}",
        "groups[0].policy.user_event_limit: must be at least 1",
    ),
    (
        "kind: cloud-service, machines: [], policy: {limit: 0}",
        "groups[0].policy.limit: unknown key",
    ),
    (
        "kind: cloud-service, machines: [], policy: {auto_approve: [Rebot]}",
        "groups[0].policy.auto_approve[0]: unknown value 'Rebot'; expected one of Reboot, Redeploy;"
        " did you mean",
    ),
    (
        "kind: cloud-service, machines: [], policy: {terminate_notice: 5m}",
        "groups[0].policy.terminate_notice: is only for groups of kind scale-set",
    ),
    (
        "kind: scale-set, machines: [], policy: {terminate_notice: 4m}",
        "must be from 5 min to 15 min, not 4 min",
    ),
    (
        "kind: scale-set, machines: [], policy: {terminate_notice: 16m}",
        "must be from 5 min to 15 min, not 16 min",
    ),
    ("kind: scale-set, machines: [], policy: {terminate_notice: soon}", "'soon' is not a duration"),
    (
        "kind: cloud-service, machines: [], labels: {a: 1}",
        "groups[0].labels.a: expected text, not a whole number; write it in quotes",
    ),
    (
        "kind: cloud-service, machines: [], labels: {-a: b}",
        "groups[0].labels.-a: '-a' is not a valid label name",
    ),
    (
        "kind: scale-set, machines: [{name: other_0}]",
        "groups[0].machines[0].name: 'other_0': a member of scale set 'g' is named 'g_0'",
    ),
    ("kind: scale-set, machines: [{name: g_01}]", "is named 'g_0'"),
    (
        "kind: availability-set, flexible: true, machines: [{name: a}]",
        "groups[0].flexible: is only for groups of kind scale-set",
    ),
]
WRONG_MACHINES = [
    ("{name: a}, {name: a}", "machines[1].name: machine 'a' occurs twice: group 'g' has it"),
    ("{name: a, adress: 1.2.3.4}", "machines[0].adress: unknown key; did you mean 'address'?"),
    ("{name: a, address: 1.2.3}", "machines[0].address: '1.2.3' is not an IP address"),
    ("{name: a, addresses: [10.0.0.1, x]}", "machines[0].addresses[1]: 'x' is not an IP address"),
    ("{name: a, address: 'fe80::1%eth0'}", "leave out the interface after the %"),
    ("{name: a, host: h}", "machines[0].host: host 'h' is not listed under hosts"),
    ("{name: a, update_domain: -1}", "machines[0].update_domain: must be from 0 to 999, not -1"),
    ("{name: a, fault_domain: 1000}", "machines[0].fault_domain: must be from 0 to 999, not 1000"),
    (
        "{name: a, update_domain: x}",
        "machines[0].update_domain: expected a whole number, not text",
    ),
    ("{name: 7}", "machines[0].name: expected text, not a whole number; write it in quotes"),
    ("{name: 'a b'}", "machines[0].name: 'a b' is not a valid name: use 1 to 80 letters"),
    ("{name: a, spot: maybe}", "machines[0].spot: expected true or false, not text"),
    ("{name: a, tags: [b]}", "machines[0].tags: expected a mapping, not a list"),
    (
        "{name: a, address: 10.0.0.1}, {name: b, address: '::ffff:10.0.0.1'}",
        "machines[1].address: address '10.0.0.1' occurs twice: machine 'a' has it",
    ),
    (
        f"{{name: a, vm_id: {ID}}}, {{name: b, vm_id: {ID.upper()}}}",
        f"machines[1].vm_id: vm_id '{ID.upper()}' occurs twice: machine 'a' has it",
    ),
    ("{name: a, vm_id: x}", "groups[0].machines[0].vm_id: 'x' is not a GUID; write it like"),
    (
        "{name: a, address: 0.0.0.0}",
        "machines[0].address: '0.0.0.0' is not the address of a single machine",
    ),
    ("{name: a, address: 224.0.0.1}", "'224.0.0.1' is not the address of a single machine"),
    (
        "{name: a, addresses: ['ff02::1']}",
        "machines[0].addresses[0]: 'ff02::1' is not the address of",
    ),
    (
        "{name: a, addresses: [10.0.0.1, '::']}",
        "machines[0].addresses[1]: '::' is not the address of",
    ),
    ("{name: a, 2: x}", "groups[0].machines[0]: a key must be text, not 2; write it in quotes"),
    ("{name: a, labels: {yes: x}}", "machines[0].labels: a key must be text, not true"),
    ("{name: a, tags: {~: x}}", "machines[0].tags: a key must be text, not null"),
    ("{name: a.}", "beginning with a letter or digit and ending with a letter, digit or '_'"),
    (f"{{name: a, update_domain: {'1' * 5_000}}}", f"'{'1' * 40}…' is not a valid whole number"),
    (
        f"{{name: a, update_domain: 0x{'f' * 5_000}}}",
        f"'0x{'f' * 38}…' is not a valid whole number",
    ),
    ("{name: a, spot: !!timestamp foo}", "machines[0].spot: 'foo' is not a valid timestamp"),
]


@pytest.mark.parametrize(
    ("text", "says"),
    WRONG
    + [(f"groups:\n- {{name: g, {text}}}", f"line 2: {says}") for text, says in WRONG_GROUPS]
    + [
        (f"groups:\n- name: g\n  kind: cloud-service\n  machines: [{text}]", f"line 4: {says}")
        for text, says in WRONG_MACHINES
    ],
)
def test_a_mistake_is_one_line_that_names_its_line_and_field(text: str, says: str) -> None:
    with pytest.raises(FleetError) as refusal:
        parse(text)
    line, *rest = says.split(": ", 1)
    reported = str(refusal.value).splitlines()
    assert any(one.startswith(line) and all(part in one for part in rest) for one in reported)
    assert all(one.startswith("line ") for one in reported)


def test_an_error_names_file_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(WHOLE.replace("computer_name", "computer_nam"))
    with pytest.raises(FleetError) as refusal:
        load(path)
    number = path.read_text().split("computer_nam")[0].count("\n") + 1
    assert str(refusal.value).startswith(f"{path}:{number}: groups[0].machines[1].computer_nam: ")
    assert "'computer_name'" in str(refusal.value)


def test_hosts_and_defaults_may_stand_below_what_uses_them() -> None:
    first, second = WHOLE.split("groups:")
    assert parse(f"groups:{second}{first}") == parse(WHOLE)


def test_a_fleet_in_json_is_read() -> None:
    assert parse(json.dumps(yaml.safe_load(WHOLE))) == parse(WHOLE)


def test_groups_and_machines_may_come_from_anchors_and_merges() -> None:
    text = """
hosts: [a]
groups:
  - &first
    name: one
    kind: availability-set
    labels: {tier: web}
    machines:
      - &machine {name: one-a, host: a, spot: true}
      - {<<: *machine, name: one-b}
  - {<<: *first, name: two, machines: [{<<: *machine, name: two-a}]}
  - name: three
    <<: *first
    machines:
      - {name: three-a}
"""
    fleet = parse(text)
    assert [m.name for m in fleet.machines] == ["one-a", "one-b", "two-a", "three-a"]
    assert [m.spot for m in fleet.machines] == [True, True, True, False]
    assert all(define.labels == {"tier": "web"} for define in fleet.groups.values())


def test_an_error_in_what_was_merged_in_has_the_line_of_the_machine() -> None:
    text = """
groups:
  - name: g
    kind: availability-set
    policy: &unrelated {spott: true}
    machines:
      - {name: a}
      - {name: b, <<: *unrelated}
"""
    with pytest.raises(FleetError) as refusal:
        parse(text)
    (merged,) = refusal.value.others
    assert (merged.line, merged.field) == (8, "groups[0].machines[1].spott")


def test_all_mistakes_of_a_machine_are_reported_at_once() -> None:
    text = """
groups:
  - name: g
    kind: availability-set
    machines:
      - {name: a, host: x, address: 10.0.0.300, vm_id: b, labels: {"c d": e}, update_domain: -1}
      - {name: a, fault_domain: 5000}
"""
    with pytest.raises(FleetError) as refusal:
        parse(text)
    mistakes = [refusal.value, *refusal.value.others]
    assert {(error.line, *error.path[2:]) for error in mistakes} == {
        (6, "machines", 0, "host"),
        (6, "machines", 0, "address"),
        (6, "machines", 0, "vm_id"),
        (6, "machines", 0, "labels", "c d"),
        (6, "machines", 0, "update_domain"),
        (7, "machines", 1, "name"),
        (7, "machines", 1, "fault_domain"),
    }


def test_all_mistakes_of_a_policy_are_reported_at_once() -> None:
    text = """
groups:
  - name: g
    kind: availability-set
    policy:
      user_event_limit: 0
      terminate_notice: 5m
      windows: [never]
      blackouts: [2026-12-24 to never]
      may_postpone: often
    machines: [{name: a}]
"""
    with pytest.raises(FleetError) as refusal:
        parse(text)
    mistakes = [refusal.value, *refusal.value.others]
    assert [(error.line, error.path[3]) for error in mistakes] == [
        (6, "user_event_limit"),
        (7, "terminate_notice"),
        (8, "windows"),
        (9, "blackouts"),
        (10, "may_postpone"),
    ]


def test_reading_reports_its_progress() -> None:
    machines = "".join(f"      - {{name: m{n}}}\n" for n in range(3_000))
    reported: list[float] = []
    parse(
        f"groups:\n  - name: g\n    kind: availability-set\n    machines:\n{machines}",
        reported.append,
    )
    assert reported == sorted(reported)
    assert len(reported) > 2
    assert 0 <= reported[0] < 0.1
    assert 0.5 < reported[-1] <= 1


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
    assert len(fleet.hosts) == 3
    assert [m.update_domain for m in fleet.groups["sql"].machines] == [0, 1, 2]
    assert [m.spot for m in fleet.groups["web"].machines].count(True) == 2


@pytest.mark.parametrize("text", ["[", "{a: ", "- "])
def test_a_file_that_nests_without_end_is_refused(text: str) -> None:
    with pytest.raises(FleetError, match="nested too deeply"):
        parse("groups:\n- " + text * 1_000_000)


def test_on_loopback_every_machine_has_an_address_of_its_own() -> None:
    machines = "".join(f"      - {{name: m{n}}}\n" for n in range(600))
    fleet = parse(f"groups:\n  - name: g\n    kind: availability-set\n    machines:\n{machines}")
    addresses = [m.addresses[0] for m in on_loopback(fleet).machines]
    assert len(set(addresses)) == 600
    assert addresses[0] == "127.0.1.1"
    assert all(a.startswith("127.0.") and not a.endswith((".0", ".255")) for a in addresses)


def test_on_loopback_machines_keep_the_addresses_they_have() -> None:
    fleet = on_loopback(parse(_of("a", "b", "c")))
    groups = {"g": Group(name="g", machines=fleet.groups["g"].machines)}
    again = {
        m.name: m.addresses[0] for m in on_loopback(parse(_of("new", "c", "b")), groups).machines
    }
    assert again["b"] == fleet.machines[1].addresses[0]
    assert again["c"] == fleet.machines[2].addresses[0]
    assert again["new"] not in (again["b"], again["c"])


def _of(*names: str) -> str:
    machines = ", ".join(f"{{name: {name}}}" for name in names)
    return f"groups: [{{name: g, kind: availability-set, machines: [{machines}]}}]"


def test_all_mistakes_of_a_file_are_reported_in_the_order_of_their_lines() -> None:
    text = """
hosts: [rack-1]
groups:
  - name: web
    kind: scale-set
    labls: {tier: web}
    machines:
      - {name: web_0, host: rack-2, spott: true, update_domain: 99999}
      - {name: web_0}
      - {nam: web_2}
      - {name: web_3, address: nowhere, host: rack-1}
  - {name: jump, kind: standalon, machines: [{name: jump}]}
  - {name: db, kind: standalone, machines: [{name: db-0}, {name: db-1}]}
loction: here
"""
    with pytest.raises(FleetError) as refusal:
        parse(text)
    mistakes = [refusal.value, *refusal.value.others]
    assert [(mistake.line, mistake.field) for mistake in mistakes] == [
        (6, "groups[0].labls"),
        (8, "groups[0].machines[0].spott"),
        (8, "groups[0].machines[0].update_domain"),
        (8, "groups[0].machines[0].host"),
        (9, "groups[0].machines[1].name"),
        (10, "groups[0].machines[2].nam"),
        (11, "groups[0].machines[3].address"),
        (12, "groups[1].kind"),
        (13, "groups[2].machines"),
        (14, "loction"),
    ]
    assert len(str(refusal.value).splitlines()) == len(mistakes)
    assert "'rack-1'" in str(refusal.value)
    assert "'location'" in str(refusal.value)


def test_only_some_of_very_many_mistakes_are_reported() -> None:
    machines = ", ".join(f"{{name: m-{n}, spott: true}}" for n in range(2 * MAX_COLLECTED))
    with pytest.raises(FleetError) as refusal:
        parse(f"groups: [{{name: g, kind: availability-set, machines: [{machines}]}}]")
    *reported, last = str(refusal.value).splitlines()
    assert len(reported) == MAX_MISTAKES
    assert last == f"and {MAX_COLLECTED - MAX_MISTAKES} more mistakes"
