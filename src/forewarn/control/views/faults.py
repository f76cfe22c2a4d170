"""Conversion of injected faults to the type of the control API."""

from __future__ import annotations

from forewarn.control.schema import faults as f
from forewarn.control.views.shape import moment, view
from forewarn.service.faults.model import FaultAccount


def fault(account: FaultAccount) -> f.Fault:
    fault = account.fault
    return view(
        f.Fault,
        account,
        fault,
        message=account.consumption,
        starts_at=moment(fault.begins),
        ends_at=moment(fault.ends),
        added_by=fault.by,
        remaining=account.left,
    )
