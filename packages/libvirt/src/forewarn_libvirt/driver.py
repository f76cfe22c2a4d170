"""The driver: which answer the service gets, and what is done next to each machine of a task.

A task is carried out machine by machine, each in small steps that do not wait. Every step looks
first at where the domain is and at its note, so that the next one can be taken by another process,
after a crash or a take-over. How one step is taken is `steps.py`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import libvirt

from forewarn.core.time import SECOND, Duration
from forewarn.drivers.command.driver import CommandDriver
from forewarn.drivers.command.options import Program
from forewarn.drivers.port import (
    Checked,
    Done,
    Driver,
    DriverContext,
    Failed,
    Happened,
    Later,
    NotYet,
    Observed,
    Performed,
    Running,
    Seen,
    Task,
    Unknown,
    Veto,
)
from forewarn.drivers.registry import DriverType
from forewarn.support.program import find_program
from forewarn_libvirt.checks import why_not
from forewarn_libvirt.definitions import Definitions, NotKept
from forewarn_libvirt.hosts import Hosts, Unreachable
from forewarn_libvirt.machines import read_places
from forewarn_libvirt.migrations import Migrations
from forewarn_libvirt.options import LibvirtOptions
from forewarn_libvirt.steps import Refused, Steps, Unclear, Wait
from forewarn_libvirt.watch import Watch

CALLS_AT_ONCE = 16  # threads, each of which may wait for a host
OPEN_WITHIN = 5.0  # seconds: a host that cannot be reached by then is tried again later

Answer = TypeVar("Answer")


class LibvirtDriver(Driver):
    repeatable = False  # it is only unknown where somebody has to look

    def __init__(
        self,
        options: LibvirtOptions,
        context: DriverContext,
        open: Callable[[str], Any] = libvirt.open,
    ) -> None:
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, "libvirt")
        self._hosts = Hosts(options.uri_of, open)
        self._definitions = Definitions(Path(options.definitions) if options.definitions else None)
        self._steps = Steps(
            options,
            self._hosts,
            self._definitions,
            Migrations(options, context.may_act),
            context.may_act,
        )
        self._options = options
        self._watched = context.hosts or tuple(options.uris)
        self._work: CommandDriver | None = None
        if options.work:
            program = Program(
                words=find_program(options.work),
                timeout=options.duration("work_timeout") / SECOND,
                work=True,
            )
            self._work = CommandDriver(
                program,
                context.file("libvirt-work"),
                context.may_act,
                context.service_pid,
                context.watch_lease,
                context.on_progress,
            )

    @property
    def works(self) -> bool:
        return self._work is not None

    async def check(self, task: Task) -> Checked:
        if task.work and self._work is not None:
            return await self._work.check(task)
        try:
            return await self._call(why_not, task, self._options, self._hosts, self._definitions)
        except (Unreachable, NotKept, libvirt.libvirtError) as error:
            return Veto(str(error))

    async def observe(self, task: Task) -> Observed:
        if task.work and self._work is not None:
            return await self._work.observe(task)
        try:
            return await self._call(self._observe, task)
        except (Unreachable, libvirt.libvirtError) as error:
            return Later(None, str(error))
        except Unclear as error:
            return Unknown(str(error))

    async def perform(self, task: Task) -> Performed:
        if task.work and self._work is not None:
            return await self._work.perform(task)
        return await self._call(self._perform, task)

    async def watch(self, report: Callable[[Seen], None]) -> None:
        """Without hosts of its own, as in the service, it watches those that the options name."""
        threads = ThreadPoolExecutor(len(self._watched) or 1, "libvirt-watch")
        try:
            places = functools.partial(read_places, self._options.machines)
            watches = [Watch(host, self._hosts, places, threads, report) for host in self._watched]
            await asyncio.gather(*(watch.run() for watch in watches))
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        attempts = [loop.run_in_executor(self._threads, self._definitions.try_to_keep)]
        attempts += [
            loop.run_in_executor(self._threads, self._hosts.try_to_reach, host)
            for host in self._watched
        ]
        await asyncio.wait(attempts, timeout=OPEN_WITHIN)

    def problem(self) -> str:
        return self._hosts.problem(self._watched) or self._definitions.problem

    async def aclose(self) -> None:
        if self._work is not None:
            await self._work.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._hosts.close()

    async def _call(self, function: Callable[..., Answer], *args: Any) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    # In a thread.

    def _observe(self, task: Task) -> Observed:
        moved: dict[str, str] = {}
        away: dict[str, float] = {}
        seen = [self._steps.has_happened(task, machine, moved, away) for machine in task.machines]
        return Happened(moved, away=away) if all(seen) else NotYet()

    def _perform(self, task: Task) -> Performed:
        """Take the next step with each machine, whatever comes of the others."""
        moved: dict[str, str] = {}
        away: dict[str, float] = {}
        waits: list[Wait] = []
        refused: list[Refused] = []
        unclear: list[str] = []
        for machine in task.machines:
            try:
                if (wait := self._steps.go_on(task, machine, moved, away)) is not None:
                    waits.append(wait)
            except Refused as error:
                refused.append(error)
            except Unclear as error:
                unclear.append(str(error))
            except (Unreachable, libvirt.libvirtError) as error:
                unclear.append(f"{machine.name}: {error}")
        if unclear:
            return Unknown("; ".join(unclear))
        if waits:  # those that were refused are tried again when the others are done
            return Running(_soonest(waits), "; ".join(wait.progress for wait in waits))
        if refused:
            unsuitable = dict.fromkeys(host for error in refused for host in error.unsuitable)
            why = "; ".join(str(error) for error in refused)
            return Failed(why, unsuitable=tuple(unsuitable), moved=moved)
        return Done(moved, away=away)


def _soonest(waits: list[Wait]) -> Duration:
    return min(wait.after for wait in waits)


DRIVER = DriverType(LibvirtDriver, LibvirtOptions)
