"""What a PUT or PATCH changes: the number of machines of a scale set, and the rules for events of a
scale set, an availability set or a machine in neither. Everything else has to be as GET gives it,
or can be left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from forewarn.arm.errors import ArmError, invalid_parameter, not_allowed
from forewarn.arm.times import iso_duration, parse_iso_duration
from forewarn.core import EventType, Policy
from forewarn.core.deciding.removals import MAX_TERMINATE_NOTICE, MIN_TERMINATE_NOTICE
from forewarn.core.time import Duration
from forewarn.support.text import counted

CAPACITY = "sku.capacity"
PROFILE = "properties.virtualMachineProfile.scheduledEventsProfile"
NOTICES = {  # by their profile
    "terminateNotificationProfile": "terminate_notice",
    "osImageNotificationProfile": "image_notice",
}
NOTICE_PATHS = [f"{PROFILE}.{p}.{n}" for p in NOTICES for n in ("enable", "notBeforeTimeout")]
EVENTS_POLICY = "properties.scheduledEventsPolicy"
APPROVED_TYPES = {
    f"{EVENTS_POLICY}.userInitiatedReboot.automaticallyApprove": EventType.REBOOT,
    f"{EVENTS_POLICY}.userInitiatedRedeploy.automaticallyApprove": EventType.REDEPLOY,
}
ALL_DOWN = f"{EVENTS_POLICY}.allInstancesDown.automaticallyApprove"
PUBLISHED = (
    f"{EVENTS_POLICY}.scheduledEventsAdditionalPublishingTargets.eventGridAndResourceGraph.enable"
)
RULES = (*APPROVED_TYPES, ALL_DOWN, PUBLISHED)
# What clients send back as they got it, and which may have changed since.
READ_ONLY = re.compile(
    r"(etag|systemData|properties\.(provisioningState|timeCreated))(\..*)?$", re.IGNORECASE
)


class ScaleSetUpdate(msgspec.Struct, frozen=True):
    capacity: int | None  # None: it does not change
    change: Callable[[Policy], Policy]


def read_update(body: dict[str, Any], current: dict[str, Any]) -> ScaleSetUpdate:
    """Return what a body asks for; `current` is what GET gives. Raises ArmError if that cannot be
    changed."""
    offered = f"of a scale set, forewarn changes {CAPACITY}, {EVENTS_POLICY} and {PROFILE}"
    values = _values(body, current, (CAPACITY, *NOTICE_PATHS, *RULES), offered)
    capacity = values.pop(CAPACITY, None)
    if capacity is not None:
        _check_capacity(capacity, current["sku"]["capacity"], current["name"])
    read = {field: _notice(profile, values, current) for profile, field in NOTICES.items()}
    notices = {field: notice for field, notice in read.items() if notice is not msgspec.UNSET}
    change_rules = _rules(values)

    def change(policy: Policy) -> Policy:
        return msgspec.structs.replace(change_rules(policy), **notices)

    return ScaleSetUpdate(capacity, change)


def read_rules(
    body: dict[str, Any], current: dict[str, Any], owner: str = ""
) -> Callable[[Policy], Policy]:
    """Do the same for what is no scale set; with `owner`, that has the rules. Raises ArmError."""
    offered = f"forewarn changes {EVENTS_POLICY} only"
    if owner:
        offered = f"its {EVENTS_POLICY} is that of {owner}, and nothing else can be changed"
    return _rules(_values(body, current, () if owner else RULES, offered))


def _values(
    body: dict[str, Any], current: dict[str, Any], paths: Iterable[str], offered: str
) -> dict[str, Any]:
    """Return the values by path that differ from the current ones. Raises ArmError."""
    changeable = {path.lower(): path for path in paths}
    values: dict[str, Any] = {}
    refused: list[str] = []
    for path, value in differences(body, current, ""):
        if path.lower() in changeable:
            values[changeable[path.lower()]] = value
        elif not READ_ONLY.match(path):
            refused.append(path)
    if refused:
        raise ArmError(
            409,
            "PropertyChangeNotAllowed",
            f"Changing property '{refused[0]}' is not allowed: {offered}. Send everything else as"
            " GET returns it, or leave it out.",
            [
                ("PropertyChangeNotAllowed", f"Changing property '{path}' is not allowed.")
                for path in refused[1:]
            ],
        )
    return values


def _rules(values: dict[str, Any]) -> Callable[[Policy], Policy]:
    for path in RULES:
        _require_boolean(path, values.get(path, False))

    def change(policy: Policy) -> Policy:
        approved = dict.fromkeys(policy.auto_approve, True)
        approved |= {type: values[path] for path, type in APPROVED_TYPES.items() if path in values}
        return msgspec.structs.replace(
            policy,
            auto_approve=tuple(type for type, always in approved.items() if always),
            all_instances_down=values.get(ALL_DOWN, policy.all_instances_down),
            event_grid=values.get(PUBLISHED, policy.event_grid),
        )

    return change


def differences(wanted: Any, current: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the properties in which a body differs from what GET gives. What it leaves out, or
    gives as null, does not count, and neither does the letter case of names and words."""
    if wanted is None or (wanted == [] and current is None):
        return
    if isinstance(wanted, dict) and (current is None or isinstance(current, dict)):
        by_name = {name.lower(): value for name, value in (current or {}).items()}
        for name, value in wanted.items():
            below = f"{path}.{name}" if path else name
            yield from differences(value, by_name.get(name.lower()), below)
    elif not _same(wanted, current):
        yield path, wanted


def _same(wanted: Any, current: Any) -> bool:
    if isinstance(wanted, str) and isinstance(current, str):
        return wanted.casefold() == current.casefold()
    return bool(wanted == current) and isinstance(wanted, bool) == isinstance(current, bool)


def _check_capacity(capacity: Any, current: int, name: str) -> None:
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 0:
        raise _invalid(CAPACITY, f"must be a number of machines, not {capacity!r}")
    if capacity > current:
        raise not_allowed(
            f"Scale set '{name}' has {counted(current, 'machine')} and cannot be scaled out to"
            f" {capacity}: machines are added with the fleet file."
        )


def _notice(
    name: str, values: dict[str, Any], current: dict[str, Any]
) -> Duration | msgspec.UnsetType | None:
    """Return the new notice of a profile; None: there is none; UNSET: it does not change."""
    enable_path, timeout_path = f"{PROFILE}.{name}.enable", f"{PROFILE}.{name}.notBeforeTimeout"
    if not values.keys() & {enable_path, timeout_path}:
        return msgspec.UNSET
    profile = current["properties"]["virtualMachineProfile"]["scheduledEventsProfile"][name]
    enable = values.get(enable_path, profile["enable"])
    _require_boolean(enable_path, enable)
    text = values.get(timeout_path)
    notice = MIN_TERMINATE_NOTICE
    if text is not None:
        parsed = parse_iso_duration(text) if isinstance(text, str) else None
        if parsed is None or not MIN_TERMINATE_NOTICE <= parsed <= MAX_TERMINATE_NOTICE:
            raise _invalid(
                timeout_path,
                f"must be from {iso_duration(MIN_TERMINATE_NOTICE)} to"
                f" {iso_duration(MAX_TERMINATE_NOTICE)}, not {text!r}",
            )
        if not enable and enable_path not in values:
            raise _invalid(timeout_path, "is only used if enable is true")
        notice = parsed
    return notice if enable else None


def _require_boolean(path: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise _invalid(path, f"must be true or false, not {value!r}")


def _invalid(path: str, problem: str) -> ArmError:
    return invalid_parameter(f"{path} {problem}.")
