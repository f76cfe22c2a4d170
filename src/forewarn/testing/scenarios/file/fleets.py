"""Reads the fleet of a scenario: as in a fleet file, but machines can also be given by number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from forewarn.service.fleet import read
from forewarn.service.fleet.read import MAX_PLACEMENT_GROUP, Fleet, FleetError
from forewarn.support.text import listing
from forewarn.support.yaml.positions import Problems, Where, YamlError
from forewarn.testing.scenarios.file.convert import mapping
from forewarn.testing.scenarios.file.shapes import MAX_COUNT

_NAMES = {"scale-set": "{}_{}", "cloud-service": "{}_IN_{}"}
_DISTRIBUTED = ("update_domains", "hosts")  # over which machines given by number are distributed


def fleet(raw: Any, directory: Path | None, problems: Problems) -> Fleet | None:
    """Read the fleet. None if it cannot be used: everything that is wrong is in `problems` then."""
    if isinstance(raw, str):
        return _from_file(raw, directory, problems)
    values = mapping(raw, ("fleet",), "a fleet")
    expanded = _expand(values)
    try:
        parsed = read.parse(msgspec.json.encode(expanded).decode())
    except FleetError as error:
        for mistake in (error, *error.others):
            problems.add(YamlError(mistake.message, ("fleet", *mistake.path)))
        return None
    except (TypeError, msgspec.EncodeError) as error:
        raise YamlError(f"a fleet contains text and numbers only: {error}", ("fleet",)) from error
    if not parsed.machines:
        raise YamlError("the fleet has no machines", ("fleet", "groups"))
    return parsed


def _from_file(name: str, directory: Path | None, problems: Problems) -> Fleet | None:
    if directory is None:
        raise YamlError("only a scenario in a file can refer to a fleet file", ("fleet",))
    try:
        return read.load(directory / name)
    except FleetError as error:
        for line in str(error).splitlines():
            problems.add(YamlError(line, ("fleet",)))
        return None


def _expand(values: dict[str, Any]) -> dict[str, Any]:
    """Return the fleet with lists of machines instead of their numbers."""
    groups = values.get("groups")
    if not isinstance(groups, list):
        return values
    expanded = []
    for index, group in enumerate(groups):
        machines = group.get("machines") if isinstance(group, dict) else None
        if isinstance(machines, int) and not isinstance(machines, bool):
            machines = {"count": machines}
        if isinstance(machines, dict):
            expanded += _expand_group(group, machines, ("fleet", "groups", index, "machines"))
        else:
            expanded.append(group)
    return {**values, "groups": expanded}


def _expand_group(
    group: dict[str, Any], machines: dict[str, Any], at: Where
) -> list[dict[str, Any]]:
    count = machines.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_COUNT:
        raise YamlError(
            f"expected a list of machines, or their number up to {MAX_COUNT}: 3, or"
            " {count: 3, spot: true}",
            at,
        )
    common = {k: v for k, v in machines.items() if k != "count" and k not in _DISTRIBUTED}
    domains, hosts = machines.get("update_domains"), machines.get("hosts", [])
    if domains is not None and (not isinstance(domains, int) or domains is True or domains < 1):
        raise YamlError("update_domains is a number, 1 or more", (*at, "update_domains"))
    if not isinstance(hosts, list):
        raise YamlError(
            "hosts is a list of the hosts that the machines are distributed over", (*at, "hosts")
        )
    if "name" in common:
        raise YamlError(
            "machines given by number get their names from the group; remove 'name'", (*at, "name")
        )
    name, kind = group.get("name"), group.get("kind")
    pattern = _NAMES.get(str(kind), "{}-{}")
    members = []
    for number in range(count):
        single = kind == "standalone" and count == 1
        machine = {"name": str(name) if single else pattern.format(name, number), **common}
        if domains is not None:
            machine["update_domain"] = number % domains
        if hosts:
            machine["host"] = hosts[number % len(hosts)]
        members.append(machine)
    if kind != "scale-set" or count <= MAX_PLACEMENT_GROUP:
        return [{**group, "machines": members}]
    return [
        {
            **group,
            "name": str(name) if start == 0 else f"{name}-{start // MAX_PLACEMENT_GROUP + 1}",
            "scale_set": str(name),
            "machines": members[start : start + MAX_PLACEMENT_GROUP],
        }
        for start in range(0, count, MAX_PLACEMENT_GROUP)
    ]


def groups_of(fleet: Fleet) -> set[str]:
    """Return the names of groups and scale sets."""
    scale_sets = {
        define.place.scale_set for define in fleet.groups.values() if define.place.scale_set
    }
    return {*fleet.groups, *scale_sets}


def in_a_line(fleet: Fleet) -> str:
    """Describe the fleet, for example `3 machines in web`."""
    names = list(fleet.groups)
    count = len(fleet.machines)
    return f"{count} machine{'' if count == 1 else 's'} in {listing(names)}"
