"""A scale set's member has two names: `vmss_18`, which events list, and the host name `vmss00000i`.

One follows from the other, number to number. This is for people and their scripts, which often
know only the host name. The client itself never goes by host names: see `identity`.
"""

from __future__ import annotations

import re

from forewarn.wire.instance import host_name_of, instance_of

_MEMBER = re.compile(r"(.+)_(0|[1-9][0-9]*)", re.DOTALL | re.ASCII)


def host_name(name: str, prefix: str | None = None) -> str | None:
    """`vmss_18` is `vmss00000i`; None if this is no member's name.

    A scale set may have been made with another prefix for its host names than its own name.
    """
    found = _MEMBER.fullmatch(name)
    if found is None or len(found[2]) > 10:
        return None
    try:
        return host_name_of(found[1] if prefix is None else prefix, int(found[2]))
    except ValueError:
        return None


def instance_name(host_name: str, scale_set: str) -> str | None:
    """`vmss00000i` of `vmss` is `vmss_18`, in any letter case, also with a domain behind it.

    The prefix may be another than the scale set's name, so only the last six digits (of base 36)
    are read. Any name that ends in six letters or digits looks like a member's: ask only of
    machines that are in this scale set.
    """
    if not scale_set:
        return None
    try:
        _, number = instance_of(host_name.partition(".")[0])
    except ValueError:
        return None
    return f"{scale_set}_{number}"
