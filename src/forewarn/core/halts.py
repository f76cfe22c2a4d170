"""Halts: until one is released, nothing that it covers and that has not started yet starts.

A halt is placed and released by operators. What it covers is looked at whenever something might
start, so groups and machines that are created while it stands are covered as well. What this means
for an event is decided in `deciding/holds.py`.
"""

from __future__ import annotations

import msgspec


class Halt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    by: str
    at: int  # when it was placed, as a Time
    note: str = ""
    groups: tuple[str, ...] = ()  # only these groups; empty: all
    label: str = ""  # a selector: only machines that match; empty: all
    host_label: str = ""  # a selector: only machines on hosts that match; empty: all

    @property
    def partial(self) -> bool:
        return bool(self.groups or self.label or self.host_label)

    @property
    def scope(self) -> str:
        """What it covers, in words."""
        parts = []
        if self.groups:
            parts.append(f"group{'s' if len(self.groups) > 1 else ''} {', '.join(self.groups)}")
        if self.label:
            parts.append(f"machines with label {self.label}")
        if self.host_label:
            parts.append(f"hosts with label {self.host_label}")
        return " and ".join(parts) or "the whole fleet"
