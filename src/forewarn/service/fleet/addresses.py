"""Which addresses a machine of a fleet can have, where machines are told apart by the source
address of their requests."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from typing import TypeAlias

WELL_KNOWN = "169.254.169.254"  # of the metadata endpoint, as every guest knows it

# Why a machine cannot have an address, or "". Addresses are in the form in which `build` has them.
AddressProblem: TypeAlias = Callable[[str], str]


def any_address(_address: str) -> str:
    """Let a machine have any address, as where each is given one in any case."""
    return ""


def guest_addresses(endpoint: Collection[str]) -> AddressProblem:
    """Return what is wrong with addresses of guests, given those that the endpoint listens on.

    An endpoint on loopback is there to be tried out: only programs on this computer reach it, and
    so they are its guests."""
    own = frozenset(endpoint)
    tried_out = any(map(_is_loopback, own))

    def problem(address: str) -> str:
        if address == WELL_KNOWN or (address in own and not tried_out):
            return (
                f"'{address}' is the address of the endpoint itself; give the address from which"
                " the machine sends its requests"
            )
        if (address.startswith("127.") or address == "::1") and not tried_out:
            return (
                f"'{address}' is a loopback address, from which no other machine can send requests;"
                " give the address from which the machine sends its requests"
            )
        return ""

    return problem


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"
