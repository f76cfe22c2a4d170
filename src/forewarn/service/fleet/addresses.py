"""Which addresses a machine of a fleet can have, where machines are told apart by the source
address of their requests."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection

import msgspec

WELL_KNOWN = "169.254.169.254"  # of the metadata endpoint, as every guest knows it


class AddressRules(msgspec.Struct, frozen=True):
    # Returns why a machine cannot have an address, or "". Addresses are in the form in which
    # `build` has them.
    problem: Callable[[str], str] = lambda _: ""
    per_host: bool = False  # machines on different hosts may have the same one


# As where each machine is given an address in any case.
ANY_ADDRESS = AddressRules()


def guest_addresses(endpoint: Collection[str], *, per_host: bool = False) -> AddressRules:
    """Return which addresses guests can have, given those that the endpoint listens on.

    An endpoint on loopback is there to be tried out: only programs on this computer reach it, and
    so they are its guests."""
    own = frozenset(endpoint)
    tried_out = any(map(is_loopback, own))

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

    return AddressRules(problem, per_host)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"
