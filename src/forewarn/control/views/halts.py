"""Conversion of halts to the types of the control API."""

from __future__ import annotations

from forewarn.control.schema import halts as h
from forewarn.service.platform.halts import HaltReport
from forewarn.support.instants import to_datetime


def halt(report: HaltReport) -> h.Halt:
    placed = report.halt
    return h.Halt(
        id=placed.id,
        at=to_datetime(placed.at),
        by=placed.by,
        note=placed.note,
        groups=list(placed.groups),
        label=placed.label,
        host_label=placed.host_label,
        scope=placed.scope,
        machines=report.machines,
        events=report.events,
        notes=list(report.notes),
    )
