"""Conversion of injected faults to the type of the control API."""

from __future__ import annotations

from forewarn.control.schema import faults as f
from forewarn.service.faults.model import FaultAccount
from forewarn.support.instants import to_datetime


def fault(account: FaultAccount) -> f.Fault:
    fault = account.fault
    return f.Fault(
        id=fault.id,
        kind=fault.kind.value,
        state=account.state,
        message=account.consumption,
        machines=list(fault.machines),
        groups=list(fault.groups),
        method=fault.method,
        times=fault.times,
        skip=fault.skip,
        starts_at=to_datetime(fault.begins),
        ends_at=None if fault.ends is None else to_datetime(fault.ends),
        probability=fault.probability,
        seed=fault.seed,
        seconds=fault.seconds,
        status=fault.status,
        body=fault.body,
        takes_effect=fault.takes_effect,
        added_at=to_datetime(fault.added_at),
        added_by=fault.by,
        matched=account.matched,
        consumed=account.consumed,
        remaining=account.left,
        by_machine=account.by_machine,
        last_at=None if account.last_at is None else to_datetime(account.last_at),
    )
