"""Types of maintenance configurations in the control API."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forewarn.control.schema import types as w
from forewarn.control.schema.types import doc


class MaintenanceRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """When maintenance of some machines may start."""

    select: Annotated[
        str, doc("Labels of the machines, such as `tier=web,!canary`; empty: all machines.")
    ] = ""
    windows: w.NewWindows = []
    blackouts: w.NewBlackouts = []


class Maintenance(msgspec.Struct, kw_only=True):
    """A maintenance configuration: when maintenance of some machines may start."""

    name: Annotated[str, doc("Name of the configuration.")]
    select: Annotated[
        str, doc("Labels of the machines, such as `tier=web,!canary`; empty: all machines.")
    ] = ""
    windows: w.Windows = []
    blackouts: w.Blackouts = []


class MaintenanceOutcome(Maintenance, kw_only=True):
    """A maintenance configuration as it is after a request."""

    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []
