"""Built-in hooks: small programs that follow the same contract as a user's own hooks.

Here is only what the configuration needs: which kinds there are, their options, the stages in which
they act, and a check whether they can work on this machine. What a kind does is in a module of its
own, which only `python -I -m forewarn.agent.hooks KIND` imports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import msgspec

from forewarn.agent.hooks import options as shapes

__all__ = ["KINDS", "Kind", "stages_of"]

_EVERY = frozenset(shapes.STAGES)
_CHANGING = frozenset({"prepare", "undo"})
_NOTIFYING = frozenset({"prepare", "started", "finished", "withdrawn"})


class Kind(msgspec.Struct, frozen=True):
    options: type[msgspec.Struct]
    stages: frozenset[str]  # unless its options name others
    check: Callable[[Any], list[str]]  # returns what keeps it from working here, and the remedy
    ordered: bool = True  # the later of two preparations has to be undone before the other


def stages_of(kind: str, options: msgspec.Struct) -> frozenset[str]:
    """Return the stages in which a hook of this kind with these options acts."""
    return frozenset(getattr(options, "stages", ()) or KINDS[kind].stages)


def _check_of(kind: str) -> Callable[[Any], list[str]]:
    def check(options: Any) -> list[str]:
        problems: list[str] = import_module(f"{__name__}.{kind}").check(options)
        return problems

    return check


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "haproxy": Kind(shapes.Haproxy, _CHANGING, _check_of("haproxy")),
        "kubernetes": Kind(shapes.Kubernetes, _EVERY, _check_of("kubernetes"), ordered=False),
        "log": Kind(shapes.Log, _NOTIFYING, _check_of("log")),
        "notify": Kind(shapes.Notify, _NOTIFYING, _check_of("notify")),
        "systemd": Kind(shapes.Systemd, _CHANGING, _check_of("systemd")),
        "webhook": Kind(shapes.Webhook, _NOTIFYING, _check_of("webhook")),
    }
)
