"""A scenario's fleet: what a fleet file says, or only how many machines there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from forewarn.service.fleet import read
from forewarn.service.fleet.read import MAX_PLACEMENT_GROUP, Fleet
from forewarn.support.text import listing
from forewarn.support.yaml_positions import Where, YamlError
from forewarn.testing.scenarios.file.convert import mapping
from forewarn.testing.scenarios.file.shapes import MAX_COUNT

_NAMES = {"scale-set": "{}_{}", "cloud-service": "{}_IN_{}"}
_SPREAD = ("update_domains", "hosts")  # over which a counted group's machines are spread


def fleet(raw: Any, beside: Path | None) -> Fleet:
    if isinstance(raw, str):
        return _from_file(raw, beside)
    said = mapping(raw, ("fleet",), "a fleet")
    counted = _counted(said)
    try:
        made = read.parse(msgspec.json.encode(counted).decode())
    except YamlError as error:
        raise YamlError(error.message, ("fleet", *error.path)) from error
    except (TypeError, msgspec.EncodeError) as error:
        raise YamlError(f"a fleet is made of text and numbers: {error}", ("fleet",)) from error
    if not made.machines:
        raise YamlError("the fleet has no machines", ("fleet", "groups"))
    return made


def _from_file(name: str, beside: Path | None) -> Fleet:
    if beside is None:
        raise YamlError("only a scenario that is a file can name another file", ("fleet",))
    try:
        return read.load(beside / name)
    except YamlError as error:
        raise YamlError(str(error), ("fleet",)) from error


def _counted(said: dict[str, Any]) -> dict[str, Any]:
    """With a list of machines for every group that says only how many."""
    groups = said.get("groups")
    if not isinstance(groups, list):
        return said
    made = []
    for index, group in enumerate(groups):
        machines = group.get("machines") if isinstance(group, dict) else None
        if isinstance(machines, int) and not isinstance(machines, bool):
            machines = {"count": machines}
        if isinstance(machines, dict):
            made += _groups(group, machines, ("fleet", "groups", index, "machines"))
        else:
            made.append(group)
    return {**said, "groups": made}


def _groups(group: dict[str, Any], machines: dict[str, Any], at: Where) -> list[dict[str, Any]]:
    count = machines.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_COUNT:
        raise YamlError(
            f"machines are listed, or their number is said: 3, or {{count: 3, spot: true}}, up to"
            f" {MAX_COUNT}",
            at,
        )
    alike = {k: v for k, v in machines.items() if k != "count" and k not in _SPREAD}
    domains, hosts = machines.get("update_domains"), machines.get("hosts", [])
    if domains is not None and (not isinstance(domains, int) or domains is True or domains < 1):
        raise YamlError("update_domains is how many there are, 1 or more", (*at, "update_domains"))
    if not isinstance(hosts, list):
        raise YamlError("hosts is a list of those they are spread over", (*at, "hosts"))
    if "name" in alike:
        raise YamlError("machines that are counted are named by their group", (*at, "name"))
    name, kind = group.get("name"), group.get("kind")
    pattern = _NAMES.get(str(kind), "{}-{}")
    listed = []
    for number in range(count):
        alone = kind == "standalone" and count == 1
        one = {"name": str(name) if alone else pattern.format(name, number), **alike}
        if domains is not None:
            one["update_domain"] = number % domains
        if hosts:
            one["host"] = hosts[number % len(hosts)]
        listed.append(one)
    if kind != "scale-set" or count <= MAX_PLACEMENT_GROUP:
        return [{**group, "machines": listed}]
    return [
        {
            **group,
            "name": str(name) if start == 0 else f"{name}-{start // MAX_PLACEMENT_GROUP + 1}",
            "scale_set": str(name),
            "machines": listed[start : start + MAX_PLACEMENT_GROUP],
        }
        for start in range(0, count, MAX_PLACEMENT_GROUP)
    ]


def groups_of(made: Fleet) -> set[str]:
    """Groups, and scale sets that are made of several."""
    sets = {define.place.scale_set for define in made.groups.values() if define.place.scale_set}
    return {*made.groups, *sets}


def in_a_line(made: Fleet) -> str:
    """`3 machines in web`, for people."""
    names = list(made.groups)
    count = len(made.machines)
    return f"{count} machine{'' if count == 1 else 's'} in {listing(names)}"
