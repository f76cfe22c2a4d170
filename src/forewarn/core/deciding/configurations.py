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
from forewarn.core.time import Now, Time
from forewarn.core.windows import LOOK_AHEAD, MaintenanceConfiguration, Window
from forewarn.support.text import in_words, listing, utc

SELECTORS = 256  # parsed selectors that are kept


def configurations_for(
    group: Group, machines: Iterable[str], now: Now
) -> tuple[MaintenanceConfiguration, ...]:
    """Return the configurations that maintenance of these machines of the group has to obey."""
    applying: list[MaintenanceConfiguration] = []
    if own := group.policy.configuration:
        applying.append(msgspec.structs.replace(own, name=f"group {group.name}"))
    labels: list[Mapping[str, str]] | None = None
    for configuration in now.configurations:
        if configuration.select:
            if labels is None:
                named = group.named(machines).values()
                labels = [labels_of(group, machine) for machine in named]
            selector = _selector(configuration.select)
            if not any(matches(selector, of_machine) for of_machine in labels):
                continue
        applying.append(configuration)
    return tuple(applying)


def configurations_of(group: Group, event: Event, now: Now) -> tuple[MaintenanceConfiguration, ...]:
    """Return the configurations that an event has to obey."""
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
    return listing([f"'{configuration.name}'" for configuration in configurations])


def opens_text(configurations: Iterable[MaintenanceConfiguration], at: Time) -> str:
    return f"the next time that is allowed by {names(configurations)} is {utc(at)}"
