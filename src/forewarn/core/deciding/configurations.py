"""When maintenance may start: which configurations apply to an event, and the times they allow.

A configuration of the fleet applies to an event if one of its machines has the labels that the
configuration selects; the windows and blackouts of a group apply to all its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from forewarn.core.events import Event
from forewarn.core.group import Group
from forewarn.core.labels import Selector, labels_of, matches, parse
from forewarn.core.time import Time
from forewarn.core.windows.model import MaintenanceConfiguration, Window
from forewarn.core.windows.openings import LOOK_AHEAD, next_open
from forewarn.core.world import World
from forewarn.support.text import in_words, listing, utc

SELECTORS = 256  # parsed selectors that are kept
MAX_CLOSED = 5  # sets of configurations that `never_maintained` names: finding one takes a while


def configurations_for(
    group: Group, machines: Iterable[str], now: World
) -> tuple[MaintenanceConfiguration, ...]:
    """Return the configurations that maintenance of these machines of the group has to obey."""
    if not now.configurations and group.policy.configuration is None:
        return ()
    labels: list[Mapping[str, str]] = []
    if any(configuration.select for configuration in now.configurations):
        labels = [labels_of(group, machine) for machine in group.named(machines).values()]
    return _for_labels(group, labels, now)


def _for_labels(
    group: Group, labels: Iterable[Mapping[str, str]], now: World
) -> tuple[MaintenanceConfiguration, ...]:
    applying: list[MaintenanceConfiguration] = []
    if own := group.policy.configuration:
        applying.append(msgspec.structs.replace(own, name=f"group {group.name}"))
    for configuration in now.configurations:
        selector = _selector(configuration.select) if configuration.select else ()
        if not selector or any(matches(selector, of_machine) for of_machine in labels):
            applying.append(configuration)
    return tuple(applying)


def never_maintained(groups: Iterable[Group], now: World, name: str = "") -> tuple[str, ...]:
    """Return a note for each set of configurations that leaves machines of these groups no time at
    which maintenance may start; the first few of them. With a name, only for sets that have a
    configuration of this name."""
    closed: dict[tuple[MaintenanceConfiguration, ...], list[str]] = {}
    for group in groups:
        for configurations in _all_for(group, now):
            named = not name or any(c.name == name for c in configurations)
            if named and next_open(configurations, now.at) is None:
                closed.setdefault(configurations, []).append(f"'{group.name}'")
        if len(closed) >= MAX_CLOSED:
            break
    return tuple(
        f"group{'s' if len(names) > 1 else ''} {listing(names)}: {never_open(configurations)}"
        for configurations, names in closed.items()
    )


def _all_for(group: Group, now: World) -> set[tuple[MaintenanceConfiguration, ...]]:
    """Return the sets of configurations that apply to machines of a group."""
    if not now.configurations and group.policy.configuration is None:
        return set()
    labels = {
        tuple(machine.labels.items()): labels_of(group, machine)
        for machine in group.machines
        if machine.alive
    }
    return {_for_labels(group, [of_machine], now) for of_machine in labels.values()}


def configurations_of(
    group: Group, event: Event, now: World
) -> tuple[MaintenanceConfiguration, ...]:
    """Return the configurations that an event has to obey."""
    if not now.configurations and group.policy.configuration is None:
        return ()
    if not event.obeys_windows or (event.deadline is not None and event.deadline <= now.at):
        return ()
    return configurations_for(group, event.resources, now)


@lru_cache(maxsize=SELECTORS)
def _selector(text: str) -> Selector:
    return parse(text)


def never_open(configurations: Iterable[MaintenanceConfiguration]) -> str:
    """Return the text of a refusal: there is no time at which they all allow maintenance."""
    configurations = tuple(configurations)
    problem = unknown_zones([window for c in configurations for window in c.windows])
    closed = f"; {problem}" if problem else ""
    return (
        f"maintenance cannot start within {in_words(LOOK_AHEAD)}: there is no time that the windows"
        f" and blackouts of {names(configurations)} allow{closed}"
    )


def unknown_zones(windows: Iterable[Window]) -> str:
    """Return which windows never open because of their time zones; empty if there are none."""
    closed = [window for window in windows if not window.zone_known]
    texts = listing([f"'{window.text}'" for window in closed])
    zones = listing([f"'{zone}'" for zone in dict.fromkeys(window.zone for window in closed)])
    return f"{texts} never opens: this computer has no time zone {zones}" if closed else ""


def names(configurations: Iterable[MaintenanceConfiguration]) -> str:
    limiting = [c for c in configurations if c.windows or c.blackouts]
    return listing([f"'{configuration.name}'" for configuration in limiting])


def opens_text(configurations: Iterable[MaintenanceConfiguration], at: Time) -> str:
    return f"the next time that is allowed by {names(configurations)} is {utc(at)}"
