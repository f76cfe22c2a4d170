"""Enrolling hosts: tokens with which a node gets its certificate, and which certificates count.

A token is stored, as a digest, with the hosts that it is for, and so is the key that a node has
enrolled with. Certificates of that key can be renewed without a trace in the state; those of any
other key are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from forewarn.core import Refused, Time
from forewarn.core.fleet import REVOKED, Enrollment, Host
from forewarn.core.labels import Selector, matches
from forewarn.core.refusal import Hint, conflict, invalid, unknown, unknown_name
from forewarn.core.registry import HostPut
from forewarn.core.time import DAY, HOUR, MINUTE, Duration
from forewarn.drivers.hosts.messages import DRIVER_URI
from forewarn.service.access import secret
from forewarn.service.access.authority import (
    NODE_URI,
    Authority,
    RequestInvalid,
    key_digest,
    key_of,
    requested_key,
)
from forewarn.service.engine.writer import CommitPlan, Writer
from forewarn.service.platform.hosts import BY_NODE
from forewarn.store.port import States, Store
from forewarn.support.text import counted, in_words, listing, utc

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

TOKEN_LIFE: Duration = HOUR  # unless another one is given
LEAST_TOKEN_LIFE: Duration = MINUTE
MAX_TOKEN_LIFE: Duration = 30 * DAY
CERTIFICATE_LIFE: Duration = 7 * DAY  # unless the settings say otherwise

NO_AUTHORITY = (
    "this service issues no certificates for nodes: it has no authority of its own (its setting"
    " authority)"
)
UNKNOWN_TOKEN = "the token is not known: it is incomplete, or was replaced by a later one"


class NodeAuthority(msgspec.Struct, frozen=True):
    """What control needs to enroll hosts."""

    authority: Authority
    addresses: tuple[str, ...]  # at which nodes reach the control nodes
    trusted: str  # certificates (PEM) of authorities that nodes trust
    life: Duration = CERTIFICATE_LIFE  # of a certificate


class NewEnrollment(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is wanted: for one host, or for some of those with labels."""

    host: str = ""
    label: Selector = ()
    hosts: int = 0  # with a label: how many hosts it is good for
    expires_in: Duration | None = None
    again: bool = False  # also for hosts that have a node already
    driver: bool = False  # for their driver processes, instead of their nodes


class CreatedEnrollment(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    token: str  # with the fingerprint of the authority
    addresses: tuple[str, ...]
    hosts: tuple[str, ...]  # that it is for
    expires_at: Time


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a node sends that has no certificate yet."""

    token: str
    request: str  # for a certificate (PEM)
    host: str = ""  # that it is on; empty: as the token says, or `machine`
    machine: str = ""  # the name of its computer
    address: str = ""  # from which it was sent
    driver: bool = False  # is it a driver process?


class IssuedCertificate(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    certificate: str  # PEM
    trusted: str  # certificates of authorities (PEM)
    addresses: tuple[str, ...]  # of control


class Enrollments:
    def __init__(
        self, store: Store, writer: Writer, node_authority: NodeAuthority | None = None
    ) -> None:
        self._store = store
        self._writer = writer
        self._own = node_authority

    @property
    def authority(self) -> Authority | None:
        return self._own.authority if self._own else None

    @property
    def trusted(self) -> str:
        """Certificates (PEM) of authorities that nodes trust."""
        return self._own.trusted if self._own else ""

    def listens_at(self, address: str) -> None:
        """Set the address that nodes get, unless the settings list those of all control nodes."""
        if self._own is not None and not self._own.addresses:
            self._own = msgspec.structs.replace(self._own, addresses=(address,))

    # Operators.

    async def create(self, wanted: NewEnrollment, by: str) -> CreatedEnrollment | Refused:
        """Create a token. It takes the place of an earlier one for the same hosts."""
        own = self._own
        if own is None:
            return conflict(NO_AUTHORITY)
        if refused := _problem(wanted):
            return refused
        shown = secret.new(secret.new_id())
        created: list[CreatedEnrollment] = []

        def plan(states: States) -> CommitPlan | Refused:
            hosts = _hosts_for(wanted, states.registry.hosts)
            if isinstance(hosts, Refused):
                return hosts
            lasts = TOKEN_LIFE if wanted.expires_in is None else wanted.expires_in
            enrollment = Enrollment(
                token=shown.id,
                digest=secret.digest(shown.text),
                expires_at=self._writer.now().at + lasts,
                hosts=wanted.hosts,
                driver=wanted.driver,
            )
            created[:] = [
                CreatedEnrollment(
                    id=shown.id,
                    token=f"{shown.text}.{own.authority.fingerprint}",
                    addresses=own.addresses,
                    hosts=tuple(host.name for host in hosts),
                    expires_at=enrollment.expires_at,
                )
            ]
            note = f"token {shown.id}, until {utc(enrollment.expires_at)}"
            if wanted.hosts:
                note += f", for up to {counted(wanted.hosts, 'host')}"
            puts = [
                HostPut(msgspec.structs.replace(host, enrollment=enrollment), by, note)
                for host in hosts
            ]
            return CommitPlan(puts=puts)

        outcome = await self._writer.commit(plan)
        return outcome if isinstance(outcome, Refused) else created[0]

    # Nodes.

    async def join(self, request: JoinRequest) -> IssuedCertificate | Refused:
        """Use a token: issue a certificate for the node of a host, and accept no other key there
        from now on. The same request may be repeated."""
        own = self._own
        if own is None:
            return conflict(NO_AUTHORITY)
        if isinstance(having := _having(request.token, self._store.registry.hosts), Refused):
            return having  # before anything is done for somebody unknown
        try:
            key = requested_key(request.request)
        except RequestInvalid as error:
            return invalid(str(error))
        digest = key_digest(key)
        names: list[str] = []

        def plan(states: States) -> CommitPlan | Refused:
            host = self._host_of(request, states.registry.hosts, digest)
            if isinstance(host, Refused):
                return host
            names[:] = [host.name]
            if _key(host, driver=request.driver) == digest:
                return CommitPlan()  # the answer was lost
            assert host.enrollment is not None
            used = msgspec.structs.replace(host.enrollment, used_from=request.address)
            enrolled = msgspec.structs.replace(host, enrollment=used)
            field = "driver_key" if request.driver else "node_key"
            enrolled = msgspec.structs.replace(enrolled, **{field: digest})
            note = f"token {used.token}, from {request.address}"
            return CommitPlan(puts=[HostPut(enrolled, BY_NODE, note)])

        outcome = await self._writer.commit(plan)
        if isinstance(outcome, Refused):
            return outcome
        return IssuedCertificate(
            host=names[0],
            certificate=_issued(own, key, names[0], driver=request.driver),
            trusted=own.trusted,
            addresses=own.addresses,
        )

    def _host_of(self, request: JoinRequest, hosts: Mapping[str, Host], key: str) -> Host | Refused:
        """Return the host that a request may be fulfilled for."""
        having = _having(request.token, hosts)
        if isinstance(having, Refused):
            return having
        known = having[0].enrollment
        assert known is not None
        id = known.token
        if known.driver != request.driver:
            whose = "driver process" if known.driver else "node"
            command = "driver" if known.driver else "node"
            return conflict(
                f"token {id} is for the {whose} of a host: use it with 'forewarn {command} join'"
            )
        if self._writer.now().at >= known.expires_at:
            return conflict(f"token {id} has expired, at {utc(known.expires_at)}")
        name = request.host or (request.machine if known.hosts else having[0].name)
        host = next((host for host in having if host.name == name), None)
        if host is None and name not in hosts:
            return unknown_name("host", name, [host.name for host in having])
        if host is None:
            return conflict(f"token {id} is not for host '{name}', but for {_listed(having)}")
        assert host.enrollment is not None
        if host.enrollment.used_from:
            if _key(host, driver=request.driver) == key:
                return host
            return conflict(
                f"token {id} was already used for host '{name}', from {host.enrollment.used_from}."
                " If that was somebody else, revoke the host"
            )
        used = {h.name: h.enrollment.used_from for h in having if h.enrollment}
        used = {name: address for name, address in used.items() if address}
        for other, address in used.items():
            if address == request.address:
                return conflict(
                    f"token {id} was already used from {address}, for host '{other}': whoever has"
                    " it gets one host. If two hosts have this address, create a token for each"
                )
        if known.hosts and len(used) >= known.hosts:
            return conflict(
                f"token {id} is used up: it was for {counted(known.hosts, 'host')}, and as many"
                " have joined with it"
            )
        return host

    def renew(self, host: str, certificate: bytes, *, driver: bool = False) -> str:
        """Return a new certificate (PEM) for the key of one (DER) with which a node is connected,
        or a driver process; empty if it is not from this authority."""
        if self._own is None or not self._own.authority.has_issued(certificate):
            return ""
        key = key_of(certificate)
        problem = self.driver_problem if driver else self.problem
        if key is None or problem(host, certificate):
            return ""
        return _issued(self._own, key, host, driver=driver)

    def driver_problem(self, name: str, certificate: bytes) -> str:
        """Return why a certificate, which the authorities have issued, is not accepted for the
        driver process of a host, or ""."""
        host = self._store.registry.hosts.get(name)
        if host is None:
            return f"there is no host '{name}' in the fleet"
        return self._key_problem(name, host.driver_key, certificate)

    def problem(self, name: str, certificate: bytes) -> str:
        """Return why a certificate (DER), which the authorities have issued, is not accepted for
        the node of a host, or ""."""
        host = self._store.registry.hosts.get(name)
        if host is None:
            return ""  # which is refused with another reason
        return self._key_problem(name, host.node_key, certificate)

    def _key_problem(self, name: str, accepted: str, certificate: bytes) -> str:
        if accepted == REVOKED:
            return f"the certificates of host '{name}' were revoked"
        authority = self.authority
        if not accepted and (authority is None or not authority.has_issued(certificate)):
            return ""
        key = key_of(certificate)
        if key is None or key_digest(key) != accepted:
            return f"its key is not the one with which host '{name}' was enrolled"
        return ""


def _key(host: Host, *, driver: bool) -> str:
    return host.driver_key if driver else host.node_key


def _issued(own: NodeAuthority, key: EllipticCurvePublicKey, host: str, *, driver: bool) -> str:
    return own.authority.issue_for_host(key, host, own.life, DRIVER_URI if driver else NODE_URI)


def _having(token: str, hosts: Mapping[str, Host]) -> list[Host] | Refused:
    """Return the hosts that a token is for, used or not."""
    id = secret.id_of(token)
    having = [h for h in hosts.values() if h.enrollment and h.enrollment.token == id]
    known = having[0].enrollment if having else None
    if not secret.same(token, known.digest if known else None):
        return unknown(UNKNOWN_TOKEN)
    return having


def _problem(wanted: NewEnrollment) -> Refused | None:
    if (
        wanted.expires_in is not None
        and not LEAST_TOKEN_LIFE <= wanted.expires_in <= MAX_TOKEN_LIFE
    ):
        return invalid(
            f"a token for a host must last for {in_words(LEAST_TOKEN_LIFE)} to"
            f" {in_words(MAX_TOKEN_LIFE)}; write for example 2h"
        )
    if bool(wanted.host) == bool(wanted.label):
        return invalid("give either the host that the token is for, or a label that hosts have")
    if bool(wanted.label) != (wanted.hosts > 0):
        return invalid("a token for hosts with a label is for a number of them, at least 1")
    return None


def _hosts_for(wanted: NewEnrollment, hosts: Mapping[str, Host]) -> list[Host] | Refused:
    if wanted.host:
        host = hosts.get(wanted.host)
        if host is None:
            return unknown_name("host", wanted.host, list(hosts))
        if _is_enrolled(host, wanted) and not wanted.again:
            whose = "driver process" if wanted.driver else "node"
            return conflict(
                f"host '{host.name}' has a {whose} already; with a new token, the first that uses"
                " it takes its place",
                hint=Hint.ENROLL_AGAIN,
            )
        return [host]
    labelled = [host for host in hosts.values() if matches(wanted.label, host.labels)]
    if not labelled:
        return unknown("no host has these labels")
    found = [
        host
        for host in labelled
        if wanted.again
        or not (_is_enrolled(host, wanted) or _key(host, driver=wanted.driver) == REVOKED)
    ]
    if not found:
        return conflict(
            f"all hosts with these labels have a node already, or were revoked:"
            f" {_listed(labelled)}",
            hint=Hint.ENROLL_AGAIN,
        )
    return found


def _is_enrolled(host: Host, wanted: NewEnrollment) -> bool:
    if wanted.driver:
        return host.driver_key not in ("", REVOKED)
    return host.node_key not in ("", REVOKED) or (host.node and host.node_key != REVOKED)


def _listed(hosts: list[Host]) -> str:
    return listing([host.name for host in hosts])
