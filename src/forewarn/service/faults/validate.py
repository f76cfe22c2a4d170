"""Validation of a new fault: each refusal says what would be right."""

from __future__ import annotations

import math

import msgspec

from forewarn.core import Duration, Refused
from forewarn.core.events import MAX_NOTICE
from forewarn.core.refusal import invalid
from forewarn.core.time import SECOND
from forewarn.service.faults.kinds import KINDS, MAX_DELAY, FaultTraits
from forewarn.service.indexes.machines import MachineIndex
from forewarn.support.limits import MAX_FAULT_BODY, MAX_FAULT_TIMES, MAX_SEED
from forewarn.support.suggest import instead_of, nearest
from forewarn.support.text import listing

MAX_FAULT_TARGETS = 1_000  # machines and groups that one fault can name
METHODS = ("GET", "POST")


class NewFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault to be added. By default it is for every machine, at once, until it is cleared."""

    kind: str
    machines: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    method: str = ""
    times: int | None = None
    skip: int = 0
    starts_in: Duration | None = None
    lasts: Duration | None = None
    probability: float = 1.0
    seed: int | None = None
    seconds: float | None = None
    status: int | None = None
    body: str | None = None
    takes_effect: bool | None = None


def fault_problem(wanted: NewFault, machine_index: MachineIndex) -> Refused | None:
    return option_problem(wanted) or _target_problem(wanted, machine_index)


def option_problem(wanted: NewFault) -> Refused | None:
    """Refuse options that do not fit, whatever machines there are."""
    known = {kind.value: traits for kind, traits in KINDS.items()}
    traits = known.get(wanted.kind)
    if traits is None:
        return invalid(
            f"'{wanted.kind[:40]}' is not a kind of fault; {instead_of(wanted.kind, known)}",
            suggestion=nearest(wanted.kind, known) or "",
        )
    return (
        _count_problem(wanted)
        or _time_problem(wanted)
        or _method_problem(wanted, traits)
        or _seconds_problem(wanted, traits)
        or _response_problem(wanted, traits)
    )


def _target_problem(wanted: NewFault, machine_index: MachineIndex) -> Refused | None:
    if len(wanted.machines) + len(wanted.groups) > MAX_FAULT_TARGETS:
        return invalid(
            f"a fault can be for at most {MAX_FAULT_TARGETS} machines and groups; name fewer, or"
            " none for all"
        )
    for machine in wanted.machines:
        if machine_index.group_of(machine) is None:
            return machine_index.unknown_machine(machine)
    for group in wanted.groups:
        if machine_index.group(group) is None:
            return machine_index.unknown_group(group)
    return None


def _count_problem(wanted: NewFault) -> Refused | None:
    if wanted.times is not None and not 1 <= wanted.times <= MAX_FAULT_TIMES:
        return invalid(
            f"times must be from 1 to {MAX_FAULT_TIMES}, not {wanted.times}; leave it out for a"
            " fault that stays until it is cleared"
        )
    if not 0 <= wanted.skip <= MAX_FAULT_TIMES:
        return invalid(f"skip must be from 0 to {MAX_FAULT_TIMES}, not {wanted.skip}")
    if not 0 < wanted.probability <= 1:  # which NaN is not either
        return invalid(
            f"a probability must be above 0 and at most 1, not {wanted.probability:g}; 0.1 is one"
            " in ten"
        )
    if wanted.seed is not None and not 0 <= wanted.seed <= MAX_SEED:
        return invalid(f"a seed must be a whole number from 0 to {MAX_SEED}")
    return None


def _time_problem(wanted: NewFault) -> Refused | None:
    if wanted.lasts is not None and wanted.lasts <= 0:
        return invalid("a fault must last for some time; leave the duration out for one that stays")
    for duration in (wanted.starts_in, wanted.lasts):
        if duration is not None and not 0 <= duration <= MAX_NOTICE:
            return invalid(
                f"a fault must begin within, and last at most, {MAX_NOTICE // SECOND} seconds"
            )
    return None


def _method_problem(wanted: NewFault, traits: FaultTraits) -> Refused | None:
    if not wanted.method:
        return None
    if traits.of_events:
        return invalid(
            f"a fault '{wanted.kind}' affects events, not requests; leave the method out"
        )
    if wanted.method not in METHODS:
        return invalid(f"a method must be GET or POST, not '{wanted.method[:40]}'")
    if wanted.method not in traits.methods:
        return invalid(
            f"a fault '{wanted.kind}' is about documents, which are only sent in response to GET"
        )
    return None


def _seconds_problem(wanted: NewFault, traits: FaultTraits) -> Refused | None:
    seconds = wanted.seconds
    if seconds is None:
        return None
    if not traits.timed:
        timed = listing([kind.value for kind, info in KINDS.items() if info.timed])
        return invalid(f"a fault '{wanted.kind}' takes no seconds; those that do are {timed}")
    most = MAX_DELAY if traits.delays else MAX_NOTICE / SECOND
    if not math.isfinite(seconds) or not 0 <= seconds <= most:
        return invalid(f"a fault '{wanted.kind}' takes from 0 to {most:g} seconds, not {seconds:g}")
    return None


def _response_problem(wanted: NewFault, traits: FaultTraits) -> Refused | None:
    if wanted.status is not None:
        if not traits.status:
            return invalid(
                f"the status of a fault '{wanted.kind}' is fixed; only 'error' takes one"
            )
        if not 500 <= wanted.status <= 599:
            return invalid(f"the status of an error must be from 500 to 599, not {wanted.status}")
    if wanted.body is not None:
        if not traits.body:
            takes = listing([kind.value for kind, info in KINDS.items() if info.body])
            return invalid(f"a fault '{wanted.kind}' takes no body; those that do are {takes}")
        if len(wanted.body) > MAX_FAULT_BODY:
            return invalid(f"the body of a fault may have at most {MAX_FAULT_BODY} characters")
    if wanted.takes_effect is not None:
        if traits.takes_effect is None:
            takes = listing([k.value for k, info in KINDS.items() if info.takes_effect is not None])
            return invalid(
                f"a fault '{wanted.kind}' has no option for whether an approval takes effect;"
                f" those that have it are {takes}"
            )
        if wanted.method == "GET":
            return invalid(
                "only an approval can take effect; leave out that option or the method GET"
            )
    return None
