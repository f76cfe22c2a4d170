"""The libvirt of each host: connections, and the domains that machines are.

Everything here blocks, and is called in threads.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import libvirt

from forewarn_libvirt import events, notes
from forewarn_libvirt.notes import INACTIVE, LIVE, Note

KEEPALIVE = (5, 3)  # seconds between two signs of life, and how many may be missing
_MIGRATING = frozenset({libvirt.VIR_DOMAIN_PAUSED_MIGRATION, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP})
_UNDEFINE = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
)


class Unreachable(Exception):
    """The libvirt of a host does not answer, so nothing is known about its domains."""


class Domain:
    """A domain on a host, as it is now."""

    def __init__(self, host: str, handle: Any) -> None:
        self.host = host
        self.handle = handle
        self.state, self.reason = handle.state()
        self.active = bool(handle.isActive())

    @property
    def migrating(self) -> bool:
        """Is it one end of a migration, and does not run there at this moment?"""
        return self.active and self.state == libvirt.VIR_DOMAIN_PAUSED and self.reason in _MIGRATING

    @property
    def paused(self) -> bool:
        return self.state == libvirt.VIR_DOMAIN_PAUSED and not self.migrating

    @property
    def persistent(self) -> bool:
        return bool(self.handle.isPersistent())

    def note(self) -> Note:
        """Return the note of the domain as it runs, or of its definition if it does not."""
        return notes.read(self.handle, LIVE if self.active else INACTIVE)

    def notes(self) -> tuple[Note, Note]:
        """Return the note of the running domain, and that of its definition."""
        note = self.note()
        both = self.active and self.persistent
        return note, notes.read(self.handle, INACTIVE) if both else note

    def write(self, live: Note, inactive: Note | None = None) -> None:
        """Write the note of the running domain, and that of its definition if it differs."""
        if self.persistent:
            notes.write(self.handle, inactive or live, INACTIVE)
        if self.active:
            notes.write(self.handle, live, LIVE)

    def definition(self) -> str:
        """Return what the domain is defined with, from which it can be started elsewhere."""
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
        with contextlib.suppress(libvirt.libvirtError):  # not every hypervisor can migrate
            return str(self.handle.XMLDesc(flags | libvirt.VIR_DOMAIN_XML_MIGRATABLE))
        return str(self.handle.XMLDesc(flags))

    def job(self) -> dict[str, Any]:
        """Return the job that is under way, such as a migration; an empty one if there is none."""
        try:
            job: dict[str, Any] = self.handle.jobStats()
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
                raise
            return {}
        return job if job.get("type", libvirt.VIR_DOMAIN_JOB_NONE) else {}

    def undefine(self, definition: str, *, firmware: bool = False) -> None:
        """Forget the definition, and with `firmware` what a UEFI has stored."""
        flags = _UNDEFINE
        if "<nvram" in definition:
            kept, lost = libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM, libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
            flags |= lost if firmware else kept
        self.handle.undefineFlags(flags)


class Hosts:
    """Connections to the libvirt of each host, opened when they are needed."""

    def __init__(self, uri_of: Callable[[str], str], open: Callable[[str], Any]) -> None:
        self._uri_of = uri_of
        self._open = open
        self._connections: dict[str, Any] = {}
        self._problems: dict[str, str] = {}  # by host: why there is no connection
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        events.run()

    def connection(self, host: str) -> Any:
        """Return the connection to a host, a new one if there is none. Raises Unreachable."""
        with self._lock:
            lock = self._locks.setdefault(host, threading.Lock())
        with lock:
            try:
                connection = self._connections.get(host)
                if connection is None or not connection.isAlive():
                    connection = self._connections[host] = self._connect(host)
            except libvirt.libvirtError as error:
                self._problems[host] = f"the libvirt of {host} cannot be reached: {error}"
                raise Unreachable(self._problems[host]) from error
            return connection

    def _connect(self, host: str) -> Any:
        self._problems.setdefault(host, f"the libvirt of {host} has not answered yet")
        connection = self._open(self._uri_of(host))
        del self._problems[host]
        with contextlib.suppress(libvirt.libvirtError):  # local ones have none
            connection.setKeepAlive(*KEEPALIVE)
        return connection

    def try_to_reach(self, host: str) -> None:
        with contextlib.suppress(Unreachable):
            self.connection(host)

    def problem(self, hosts: Collection[str]) -> str:
        """Return why none of these hosts can be reached, or ""."""
        problems = [self._problems[host] for host in hosts if host in self._problems]
        return "; ".join(problems) if len(problems) == len(hosts) else ""

    def find(self, host: str, name: str, vm_id: str = "") -> Domain | None:
        """Return the domain of a machine on a host, by its UUID or else by its name."""
        connection = self.connection(host)
        with reaching(host):
            for lookup in _lookups(connection, name, vm_id):
                try:
                    return Domain(host, lookup())
                except libvirt.libvirtError as error:
                    if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                        raise
        return None

    def find_all(self, hosts: Iterable[str], name: str, vm_id: str = "") -> dict[str, Domain]:
        found = {host: self.find(host, name, vm_id) for host in dict.fromkeys(hosts) if host}
        return {host: domain for host, domain in found.items() if domain is not None}

    def define(self, host: str, definition: str) -> Domain:
        connection = self.connection(host)
        with reaching(host):
            return Domain(host, connection.defineXML(definition))

    def close(self) -> None:
        for connection in self._connections.values():
            with contextlib.suppress(libvirt.libvirtError):
                connection.close()
        self._connections.clear()


@contextlib.contextmanager
def reaching(host: str) -> Iterator[None]:
    """Raise Unreachable for what libvirt raises if a connection fails."""
    try:
        yield
    except libvirt.libvirtError as error:
        lost = error.get_error_code() in (libvirt.VIR_ERR_INVALID_CONN, libvirt.VIR_ERR_NO_CONNECT)
        if lost or error.get_error_domain() in (libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE):
            raise Unreachable(f"the libvirt of {host} cannot be reached: {error}") from error
        raise


def _lookups(connection: Any, name: str, vm_id: str) -> Sequence[Callable[[], Any]]:
    by_name: list[Callable[[], Any]] = [lambda: connection.lookupByName(name)]
    try:
        identity = uuid.UUID(vm_id).bytes
    except ValueError:
        return by_name
    return [lambda: connection.lookupByUUID(identity), *by_name]
