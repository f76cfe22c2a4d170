"""Live migrations: each is one blocking call of libvirt, in a thread of its own.

They are peer to peer: the libvirt of the source carries them out, and goes on if we are killed.
Post-copy is never used: a machine whose memory is on two hosts is lost if one of them is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import libvirt
import msgspec

from forewarn_libvirt.hosts import Domain
from forewarn_libvirt.options import HOST, LibvirtOptions

MIB = 1 << 20
# What the target refuses: another host may take the machine.
UNSUITABLE = frozenset(
    {
        libvirt.VIR_ERR_CPU_INCOMPATIBLE,
        libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
        libvirt.VIR_ERR_NO_STORAGE_POOL,
        libvirt.VIR_ERR_NO_STORAGE_VOL,
        libvirt.VIR_ERR_NO_NETWORK,
        libvirt.VIR_ERR_RESOURCE_BUSY,
    }
)

Key: TypeAlias = tuple[str, str]  # the event, and the machine


class Problem(msgspec.Struct, frozen=True):
    """Why a migration has failed, and whether that is because of its target."""

    why: str
    unsuitable: bool


class Migrations:
    """The migrations that this process has begun."""

    def __init__(self, options: LibvirtOptions, may_act: Callable[[], bool]) -> None:
        self._options = options
        self._may_act = may_act
        self._running: dict[Key, str] = {}  # the host that each one leaves
        self._problems: dict[Key, Problem] = {}
        self._lock = threading.Lock()

    def start(self, key: Key, domain: Domain, target: str, copies_disks: bool) -> bool:
        """Begin a migration, unless as many are under way as are allowed. Returns at once."""
        with self._lock:
            if list(self._running.values()).count(domain.host) >= self._options.at_once:
                return False
            self._running[key] = domain.host
        arguments = (key, domain, target, copies_disks)
        threading.Thread(target=self._run, args=arguments, daemon=True).start()
        return True

    def is_running(self, key: Key) -> bool:
        return key in self._running

    def take_problem(self, key: Key) -> Problem | None:
        """Return, once, why a migration has failed."""
        return self._problems.pop(key, None)

    def _run(self, key: Key, domain: Domain, target: str, copies_disks: bool) -> None:
        options = self._options
        try:
            if not self._may_act():
                return
            with contextlib.suppress(libvirt.libvirtError):  # not every hypervisor can
                domain.handle.migrateSetMaxDowntime(options.downtime)
            domain.handle.migrateToURI3(
                options.uri_of(target),
                self._parameters(target),
                flags(options, copies_disks, persistent=domain.persistent),
            )
        except libvirt.libvirtError as error:
            unsuitable = error.get_error_code() in UNSUITABLE
            self._problems[key] = Problem(f"{key[1]} to {target}: {error}", unsuitable)
        finally:
            del self._running[key]

    def _parameters(self, target: str) -> dict[str, Any]:
        parameters: dict[str, Any] = {}
        if self._options.migrate_uri:
            uri = self._options.migrate_uri.replace(HOST, target)
            parameters[libvirt.VIR_MIGRATE_PARAM_URI] = uri
        if self._options.bandwidth:
            parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = self._options.bandwidth
        return parameters


def flags(options: LibvirtOptions, copies_disks: bool, *, persistent: bool) -> int:
    wanted = {
        libvirt.VIR_MIGRATE_LIVE: True,
        libvirt.VIR_MIGRATE_PEER2PEER: True,
        libvirt.VIR_MIGRATE_PERSIST_DEST: persistent,
        libvirt.VIR_MIGRATE_UNDEFINE_SOURCE: persistent,
        libvirt.VIR_MIGRATE_AUTO_CONVERGE: options.auto_converge,
        libvirt.VIR_MIGRATE_TLS: options.tls,
        libvirt.VIR_MIGRATE_NON_SHARED_DISK: copies_disks,
    }
    return sum(flag for flag, is_wanted in wanted.items() if is_wanted)


def progress(job: dict[str, Any]) -> str:
    """Return how far a migration is, for people."""
    total, left = job.get("data_total", 0), job.get("data_remaining", 0)
    if not total:
        return "preparing"
    return f"{100 - 100 * left // total} %, {left // MIB} MiB left"


def downtime(domain: Domain) -> float | None:
    """Return for how many seconds the migration that has ended here stopped the machine."""
    completed = libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED
    with contextlib.suppress(libvirt.libvirtError):
        milliseconds = domain.handle.jobStats(completed).get("downtime")
        return None if milliseconds is None else milliseconds / 1000
    return None
