"""The options of the driver: the table [libvirt] in the settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import msgspec

from forewarn.core.time import Duration
from forewarn.drivers.port import DriverOptions
from forewarn.support.program import ProgramUnusable, find_program
from forewarn.support.text import parse_duration
from forewarn_libvirt.machines import read_places

HOST = "{host}"
FILES_PER_HOST = 4  # a connection, and what wakes it up
_TIMES = ("freeze", "shutdown", "work_timeout")


class LibvirtOptions(DriverOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uri: Annotated[
        str,
        msgspec.Meta(
            description="how the libvirt of a host is reached; {host} stands for its name",
            examples=["qemu+tls://{host}/system"],
        ),
    ]
    # Of hosts that are reached otherwise, by name.
    uris: dict[str, str] = msgspec.field(default_factory=dict)
    freeze: str = "5s"  # for how long a machine is suspended if the event does not say
    # For how long a guest is asked to shut down, by its agent or ACPI, before it is powered off.
    shutdown: str = "2m"
    # What libvirt gives QEMU on the other host as its address; {host} as above. Empty: its name.
    migrate_uri: str = ""
    bandwidth: int = 0  # MiB/s of a migration; 0: no limit
    downtime: int = 300  # milliseconds for which a migration should stop the machine at most
    auto_converge: bool = True  # slow the guest down if its memory changes faster than it is copied
    tls: bool = False  # encrypt what QEMU sends to QEMU
    at_once: int = 2  # migrations from one host at a time
    shared: tuple[str, ...] = ()  # directories whose disks are the same on all hosts
    copy_disks: bool = False  # copy the other disks when a machine is migrated
    keep_disks: bool = True  # when a machine is evicted or deleted
    machines: str = ""  # a file that says where machines belong, beside the metadata of domains
    definitions: str = ""  # a directory that outlives hosts, for the definitions of their machines
    work: tuple[str, ...] = ()  # the program that does the work on empty hosts, and its arguments
    work_timeout: str = "1h"  # for one call of it

    paths: ClassVar[tuple[str, ...]] = ("definitions", "machines")
    programs: ClassVar[tuple[str, ...]] = ("work",)

    def problems(self) -> Iterator[tuple[str, str]]:
        for key, uri in (("uri", self.uri), *((f"uris.{h}", u) for h, u in self.uris.items())):
            if "://" not in uri:
                yield key, f"'{uri}' is not a URI of libvirt; write for example qemu:///system"
        for key in _TIMES:
            try:
                parse_duration(getattr(self, key))
            except ValueError as error:
                yield key, str(error)
        for key, least in (("bandwidth", 0), ("downtime", 1), ("at_once", 1)):
            if getattr(self, key) < least:
                yield key, f"must be at least {least}"
        for path in self.shared:
            if not path.startswith("/"):
                yield "shared", f"'{path}' is not an absolute path"
        try:
            read_places(self.machines)
        except (OSError, ValueError) as error:
            yield "machines", f"'{self.machines}' cannot be used: {error}"
        if self.work:
            try:
                find_program(self.work)
            except ProgramUnusable as error:
                yield "work", str(error)

    def open_files(self) -> int:
        return FILES_PER_HOST * (len(self.uris) + 64)

    def uri_of(self, host: str) -> str:
        return self.uris.get(host, self.uri.replace(HOST, host))

    def duration(self, key: Literal["freeze", "shutdown", "work_timeout"]) -> Duration:
        return parse_duration(getattr(self, key))
