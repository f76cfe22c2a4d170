"""Conversion of windows and maintenance configurations to the types of the control API."""

from __future__ import annotations

from forewarn.control.schema import core as s
from forewarn.control.schema import maintenance as m
from forewarn.control.views.shape import moment, view
from forewarn.core import Group, World
from forewarn.core.deciding.configurations import configurations_for
from forewarn.core.windows.model import MaintenanceConfiguration, Span
from forewarn.core.windows.openings import is_open, next_open

SHOWN_TIMES = 5  # of a group


def group_windows(group: Group, now: World) -> s.GroupWindows:
    configurations = configurations_for(group, group.alive, now)
    times: list[Span] = []
    at = now.at
    while configurations and len(times) < SHOWN_TIMES:
        span = next_open(configurations, at)
        if span is None:
            break
        times.append(span)
        if span.closes is None:
            break
        at = span.closes
    return s.GroupWindows(
        group=group.name,
        open=is_open(configurations, now.at),
        configurations=[configuration.name for configuration in configurations],
        times=[
            s.OpenTime(opens=moment(span.opens or None), closes=moment(span.closes))
            for span in times
        ],
    )


def configuration(configuration: MaintenanceConfiguration) -> m.Maintenance:
    return view(
        m.Maintenance,
        configuration,
        windows=[window.text for window in configuration.windows],
        blackouts=[blackout.text for blackout in configuration.blackouts],
    )
