"""Access tokens of machines: what a managed identity is in Azure.

A machine gets one for itself at the metadata endpoint, and uses it with az and Azure's SDKs. It is
a short-lived JWT that is signed with a key that all control nodes have and no node: whichever
control node is asked can verify it, and nothing is stored. It stands for one machine in its group,
and ends if the machine is gone, or in another group.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import msgspec

from forewarn.core import Machine
from forewarn.core.access import Limit, Role
from forewarn.core.time import SECOND
from forewarn.service.access.access_tokens import ACCESS_LIFE, LEEWAY, AccessTokenExpired
from forewarn.service.indexes.machines import MachineIndex
from forewarn.support import guard

LEAST_KEY = 32  # bytes of the secret that the signing key is derived from
ROLE = Role.TENANT  # what a machine may do to its own group, and to nothing else
TENANT_ID = "6f0a3c1e-2f4b-5c8d-9e7a-0d1b2c3f4a5e"  # of the directory that all tokens are of
ALGORITHM = "HS256"

_DERIVED = b"forewarn machine token"
_CLAIMS = ("machine", "group", "vm")


class MachineToken(msgspec.Struct, frozen=True):
    """A token, as its machine gets it. Times are seconds since 1970."""

    text: str
    client_id: str
    not_before: int
    expires_on: int


class MachineCaller(msgspec.Struct, frozen=True):
    """Whom a valid token stands for."""

    machine: str
    limit: Limit


class MachineTokenInvalid(Exception):
    """A token of ours is for another resource, or its machine is gone."""


class MachineTokens:
    def __init__(self, secret: bytes, machine_index: MachineIndex) -> None:
        self._key = hmac.digest(secret, _DERIVED, hashlib.sha256)
        self._machine_index = machine_index
        self._jwt: Any = import_module("jwt")  # now: polls would have to wait for the first token

    def issue(self, machine: str, resource: str) -> MachineToken | None:
        """Return a token of a machine for a resource; None if there is no such machine."""
        place = self._machine_index.machine(machine)
        if place is None or not place[1].alive:
            return None
        group, record = place
        now = guard.wall_us() // SECOND
        subject = str(uuid.uuid5(uuid.NAMESPACE_OID, f"forewarn/{record.vm_id}"))
        claims = {
            **dict(zip(_CLAIMS, (record.name, group.name, record.vm_id), strict=True)),
            **dict.fromkeys(("sub", "oid", "appid"), subject),
            "tid": TENANT_ID,
            "idtyp": "app",
            "aud": _audience(resource),
            "iat": now,
            "nbf": now - LEEWAY,
            "exp": now + ACCESS_LIFE,
        }
        text = self._jwt.encode(claims, self._key, ALGORITHM)
        return MachineToken(text, subject, now - LEEWAY, now + ACCESS_LIFE)

    def find(self, text: str, audiences: Sequence[str]) -> MachineCaller | None:
        """Return whom a token stands for that was issued for one of these resources; None if it is
        not one of ours. Raises AccessTokenExpired or MachineTokenInvalid."""
        jwt = self._jwt
        try:
            claims = jwt.decode(
                text,
                self._key,
                [ALGORITHM],
                audience=[_audience(audience) for audience in audiences],
                leeway=LEEWAY,
                options={"require": ["exp", "iat", "aud"]},
            )
        except jwt.ExpiredSignatureError as error:
            raise AccessTokenExpired("the access token has expired") from error
        except jwt.InvalidAudienceError as error:
            raise MachineTokenInvalid from error
        except (jwt.PyJWTError, ValueError, OverflowError, TypeError, RecursionError):
            return None
        name, group, vm_id = (str(claims.get(claim, "")) for claim in _CLAIMS)
        place = self._machine_index.machine(name)
        if place is None or place[0].name != group or not _same(place[1], vm_id):
            raise MachineTokenInvalid
        return MachineCaller(name, Limit(groups=(group,)))


def _same(machine: Machine, vm_id: str) -> bool:
    """Is it the machine that has got the token, and not another one of its name?"""
    return machine.alive and machine.vm_id == vm_id


def _audience(resource: str) -> str:
    return resource.rstrip("/").lower()
