"""Which maintenance configurations are assigned to a resource.

A configuration selects machines by their labels. One that was made by a client of Azure selects
those with the label `maintenance/{its name}`, and assigning it to a resource gives the resource
this label, with the name of the assignment as its value: the machine, or for a scale set or an
availability set its groups. Like all labels, it is part of the fleet: a fleet file that is applied
afterwards has to contain it. Other configurations are assigned to the resources all of whose
machines they select.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from forewarn.arm import inventory as i
from forewarn.arm.targets import Target
from forewarn.control.views import azure
from forewarn.core import Group, GroupKind, Refused
from forewarn.core.labels import labels_of, labels_problem, matches, parse
from forewarn.core.refusal import invalid
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.service.fleet.build import Fleet
from forewarn.service.fleet.edit import Change

PREFIX = "maintenance/"


class Assignment(msgspec.Struct, frozen=True):
    name: str
    resource: str  # its id
    configuration: str  # its name


def assigned_label(configuration: str) -> str:
    """Return the label by which a configuration selects what it is assigned to."""
    return PREFIX + configuration


def is_assignable(configuration: MaintenanceConfiguration) -> bool:
    return configuration.select == assigned_label(configuration.name)


def assignments_of(
    target: Target, configurations: Iterable[MaintenanceConfiguration]
) -> list[Assignment]:
    """Return the configurations that are for all machines of a resource."""
    every = (
        labels_of(group, machine)
        for group in target.groups.values()
        for machine in group.named(target.machines).values()
    )
    labels = list({id(of_machine): of_machine for of_machine in every}.values())  # most are shared
    return [
        Assignment(
            labels[0].get(assigned_label(configuration.name)) or configuration.name,
            target.id,
            configuration.name,
        )
        for configuration in configurations
        if labels and _selects_all(configuration, labels)
    ]


def assignments_in(
    groups: Iterable[Group], configurations: Iterable[MaintenanceConfiguration]
) -> list[Assignment]:
    """Return the assignments of configurations that were made by a label."""
    names = {
        assigned_label(configuration.name): configuration.name for configuration in configurations
    }
    found: dict[tuple[str, str], Assignment] = {}

    def add(resource: str, labels: Mapping[str, str]) -> None:
        for label in labels.keys() & names.keys():
            name = names[label]
            found[resource, name] = Assignment(labels[label] or name, resource, name)

    for group in groups:
        if azure.scale_set_of(group):
            add(azure.scale_set_id(group), group.labels)
        elif group.kind is GroupKind.AVAILABILITY_SET:
            add(i.availability_set_id(group), group.labels)
        for machine in group.machines:
            if not names.keys().isdisjoint(machine.labels) and machine.alive:
                add(i.machine_id(group, machine), machine.labels)
    return list(found.values())


def own_labels(target: Target) -> Mapping[str, str]:
    """Return the labels of a resource itself: those of a set are its groups'."""
    group = next(iter(target.groups.values()))
    if _is_set(target):
        return group.labels
    machine = group.machine(next(iter(target.machines)))
    return machine.labels if machine else {}


def relabelled(target: Target, labels: Mapping[str, str | None]) -> Change:
    """Return the change of a fleet that gives a resource these labels; None: takes them away."""
    whole = _is_set(target)

    def after(before: Mapping[str, str]) -> dict[str, str]:
        changed = {**before, **labels}
        return {name: value for name, value in changed.items() if value is not None}

    def change(fleet: Fleet) -> Fleet | Refused:
        groups = dict(fleet.groups)
        for name in target.groups:
            if (define := groups.get(name)) is None:
                continue
            if whole:
                define = msgspec.structs.replace(define, labels=after(define.labels))
            machines = tuple(
                msgspec.structs.replace(machine, labels=after(machine.labels))
                if not whole and machine.name in target.machines
                else machine
                for machine in define.machines
            )
            for changed in (define.labels, *(m.labels for m in machines if m.labels)):
                if problem := labels_problem(changed):
                    return invalid(problem[1])
            groups[name] = msgspec.structs.replace(define, machines=machines)
        return Fleet(groups, fleet.hosts)

    return change


def _is_set(target: Target) -> bool:
    return target.kind in (azure.SCALE_SETS, i.AVAILABILITY_SETS)


def _selects_all(
    configuration: MaintenanceConfiguration, labels: Iterable[Mapping[str, str]]
) -> bool:
    selector = parse(configuration.select)
    return all(matches(selector, of_machine) for of_machine in labels)
