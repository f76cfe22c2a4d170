"""Ready-made hooks: small programs that keep to the same contract as anybody's own.

Here is only what an agent's configuration has to know of them: which kinds there are, what their
options look like, in which stages they act, and what stands in their way on this machine. What a
kind does is in a room of its own, and imported by `python -I -m forewarn.agent.hooks KIND` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import msgspec

from forewarn.agent.hooks import options as shapes

__all__ = ["KINDS", "Kind", "stages_of"]

_CHANGING = frozenset({"prepare", "undo"})
_TELLING = frozenset({"prepare", "started", "finished", "withdrawn"})


class Kind(msgspec.Struct, frozen=True):
    options: type[msgspec.Struct]
    stages: frozenset[str]  # unless its options say others
    check: Callable[[Any], list[str]]  # what stands in its way here, and what to do about it


def stages_of(kind: str, options: msgspec.Struct) -> frozenset[str]:
    """The stages in which a hook of this kind with these options has something to do."""
    return frozenset(getattr(options, "stages", ()) or KINDS[kind].stages)


def _checked_by(kind: str) -> Callable[[Any], list[str]]:
    def check(options: Any) -> list[str]:
        problems: list[str] = import_module(f"{__name__}.{kind}").check(options)
        return problems

    return check


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "haproxy": Kind(shapes.Haproxy, _CHANGING, _checked_by("haproxy")),
        "log": Kind(shapes.Log, _TELLING, _checked_by("log")),
        "notify": Kind(shapes.Notify, _TELLING, _checked_by("notify")),
        "systemd": Kind(shapes.Systemd, _CHANGING, _checked_by("systemd")),
        "webhook": Kind(shapes.Webhook, _TELLING, _checked_by("webhook")),
    }
)
