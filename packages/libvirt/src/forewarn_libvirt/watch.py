"""Watch the domains of a host: all of them again and again, and each when libvirt reports an event.

A domain counts as removed if libvirt does not know it any more after an event about it, unless it
has migrated. Of a host that cannot be reached nothing is reported.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any

import libvirt
import msgspec

from forewarn.drivers.port import MachineState, Seen, SeenMachine
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn_libvirt import machines, notes
from forewarn_libvirt.hosts import Domain, Hosts, Unreachable, reaching
from forewarn_libvirt.machines import Places

ENUMERATE = 30.0  # seconds between two looks at all domains
LOOK = 0.5  # seconds between two looks at the connection
COLLECT = 0.05  # seconds in which events come together
_EVENTS = (
    libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE,
    libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE,
    libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_ADDED,
    libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED,
    libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE,
)

log = logger("forewarn")


class Watch:
    """The domains of one host."""

    def __init__(
        self,
        host: str,
        hosts: Hosts,
        places: Callable[[], Places],
        threads: Executor,
        report: Callable[[Seen], None],
    ) -> None:
        self._host = host
        self._hosts = hosts
        self._read_places = places
        self._places: Places = {}
        self._threads = threads
        self._report = report
        self._connection: Any = None  # of which there are events
        self._changed: set[str] = set()  # domains of which there were events
        self._migrated: set[str] = set()  # domains that have left
        self._known: dict[str, SeenMachine] = {}
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        enumerate_at = 0.0
        while True:
            try:
                fresh = await self._in_thread(self._connect)
                if fresh or guard.monotonic() >= enumerate_at:
                    self._changed.clear()
                    self._report(await self._in_thread(self._enumerate))
                    enumerate_at = guard.monotonic() + ENUMERATE
                elif self._changed:
                    names, self._changed = self._changed, set()
                    self._report(await self._in_thread(self._look, names))
            except (Unreachable, libvirt.libvirtError):
                enumerate_at = 0.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._woken.wait()
                    await guard.pause(COLLECT)
            self._woken.clear()

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await self._loop.run_in_executor(self._threads, function, *args)

    # Called by libvirt, in a thread of its own.

    def _happened(self, _connection: Any, domain: Any, *details: Any) -> None:
        name, kind = str(domain.name()), details[-1]
        if kind == libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE and details[1] == notes.EVENT:
            return
        left = kind == libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE and details[:2] == (
            libvirt.VIR_DOMAIN_EVENT_STOPPED,
            libvirt.VIR_DOMAIN_EVENT_STOPPED_MIGRATED,
        )
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._note, name, left)

    def _note(self, name: str, left: bool) -> None:
        self._changed.add(name)
        if left:
            self._migrated.add(name)
        self._woken.set()

    # In a thread.

    def _connect(self) -> bool:
        """Return whether there is a new connection. Events come before all domains are looked at,
        so that none is missed."""
        connection = self._hosts.connection(self._host)
        if connection is self._connection:
            return False
        with reaching(self._host):
            for kind in _EVENTS:
                connection.domainEventRegisterAny(None, kind, self._happened, kind)
        self._connection = connection
        return True

    def _enumerate(self) -> Seen:
        with reaching(self._host):
            self._note_places()
            handles = self._connection.listAllDomains()
            found = [self._seen(handle) for handle in handles]
        self._known = {machine.name: machine for machine in found if machine is not None}
        return Seen(host=self._host, machines=tuple(self._known.values()), whole=True)

    def _note_places(self) -> None:
        try:
            self._places = self._read_places()
        except (OSError, ValueError) as error:  # then they stay as they were
            log.warning("the file libvirt.machines cannot be used", why=str(error))

    def _look(self, names: Iterable[str]) -> Seen:
        found: list[SeenMachine] = []
        gone: set[str] = set()
        before = set(self._migrated)  # not while they are looked at
        for name in sorted(names):
            with reaching(self._host):
                handle = self._lookup(name)
                machine = None if handle is None else self._seen(handle)
            if machine is not None:
                found.append(machine)
                self._known[name] = machine
            elif handle is None and self._known.pop(name, None) is not None:
                gone.add(name)
        left = gone & self._migrated
        self._migrated -= left | (before & {machine.name for machine in found if _runs(machine)})
        removed = tuple(sorted(gone - left))
        if left:
            return msgspec.structs.replace(self._enumerate(), removed=removed)
        return Seen(host=self._host, machines=tuple(found), removed=removed)

    def _lookup(self, name: str) -> Any:
        try:
            return self._connection.lookupByName(name)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
            return None

    def _seen(self, handle: Any) -> SeenMachine | None:
        """Return a machine as it is; None if it has gone meanwhile, or has not arrived yet."""
        try:
            domain = Domain(self._host, handle)
            if domain.migrating:
                return self._known.get(handle.name())
            return machines.seen(domain, self._places)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
            return None


def _runs(machine: SeenMachine) -> bool:
    return machine.state in (MachineState.RUNNING, MachineState.PAUSED)
