"""Conversion of halts to the types of the control API."""

from __future__ import annotations

from forewarn.control.schema import halts as h
from forewarn.control.views.shape import view
from forewarn.service.platform.halts import HaltReport


def halt(report: HaltReport) -> h.Halt:
    return view(h.Halt, report, report.halt)
