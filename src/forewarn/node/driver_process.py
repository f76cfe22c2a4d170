"""A driver process: the driver of its hosts, its connections to control, and its fence numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from forewarn.drivers import registry
from forewarn.drivers.hosts.fences import Fences, FencesUnusable
from forewarn.drivers.hosts.messages import DRIVER_URI, ToDriver
from forewarn.drivers.hosts.process import DriverProcess
from forewarn.drivers.port import Driver, DriverContext, Seen
from forewarn.node.component import Component
from forewarn.node.config import DriverProcessConfig
from forewarn.node.listening.certificates import Pair, examine
from forewarn.node.listening.node_connections import make_tls_dial
from forewarn.node.listening.renewal import CertificateRenewal
from forewarn.node.listening.tls import Certificates, CertificateUnusable
from forewarn.support import guard
from forewarn.support.files.replace import replace
from forewarn.support.logs import logger
from forewarn.support.text import listing

log = logger("forewarn")


class DriverUnusable(Exception):
    """The process cannot be started; the message says why."""


class RunningDriver(Component):
    """A driver process, working for control while the context is entered."""

    def __init__(self, config: DriverProcessConfig) -> None:
        """Raises CertificateUnusable."""
        super().__init__()
        self.config = config
        self._certificates = Certificates(config.tls, config.authority, of_client=True)
        pair = examine(config.tls.certificate, config.tls.key, config.authority, of_client=True)
        if problem := name_problem(config, pair):
            raise CertificateUnusable(problem)
        self.process: DriverProcess

    async def _start(self) -> None:
        """Raises DriverUnusable."""
        config = self.config
        try:
            config.directory.mkdir(mode=0o700, exist_ok=True)
            fences = Fences(config.directory)
        except FencesUnusable as error:
            raise DriverUnusable(f"directory: {error}") from error
        except OSError as error:
            raise DriverUnusable(f"directory: {config.directory}: {error.strerror}") from error
        self._stack.callback(fences.close)
        driver = make_driver(
            config, lambda *progress: self.process.report(*progress), self._may_act
        )
        self._stack.push_async_callback(driver.aclose)
        try:
            await driver.open()
        except Exception as error:  # whatever a foreign driver raises
            raise DriverUnusable(f"driver '{config.driver.name}': {error}") from error
        if problem := driver.problem():
            log.warning("the driver can do nothing at present", why=problem)
        dials = [make_tls_dial(place, self._certificates, ToDriver) for place in config.control]
        self.process = DriverProcess(
            *(config.driver.name, driver, config.hosts, dials, fences, config.at_once)
        )
        renewal = CertificateRenewal(
            config.tls,
            config.authority,
            self._certificates,
            lambda _, new: name_problem(config, new),
        )
        self.process.wants_renewal, self.process.on_renewed = renewal.wanted, renewal.take
        tasks = guard.Tasks()
        self._stack.push_async_callback(tasks.end)
        tasks.start(self._certificates.watch(), "certificates")
        self.running = tasks.start(self.process.run(), "driver process")

    def write_ports(self, file: Path) -> None:
        """Keep the ports of the machines in a file, as `forewarn node rules` reads it."""

        def write(seen: Sequence[Seen]) -> None:
            if not all(of_host.whole for of_host in seen) or len(seen) < len(self.config.hosts):
                return  # a port that is not listed would be cut off
            lines = [
                f"{port} {mac} {machine.name}\n"
                for of_host in seen
                for machine in of_host.machines
                for port, mac in machine.ports.items()
                if not any(c.isspace() or c == "#" for c in f"{port}{mac}{machine.name}")
            ]
            text = "".join(sorted(lines))
            try:
                if not file.exists() or file.read_text() != text:
                    replace(file, text.encode(), mode=0o644)  # for those who load the rules
            except OSError as error:
                log.error("the ports of machines cannot be written", file=str(file), why=str(error))

        self.process.on_seen = write
        write(list(self.process.seen.values()))

    def _may_act(self) -> bool:
        return self.process.may_act()

    def status_line(self) -> str:
        """Return a summary for people, as in `systemctl status`."""
        return f"hosts {listing(self.config.hosts)}: {self.process.problem or 'joined'}"


def make_driver(
    config: DriverProcessConfig,
    on_progress: Callable[[str, str], None] = lambda *_: None,
    may_act: Callable[[], bool] = lambda: True,
) -> Driver:
    """Return the driver of a process, which keeps its files in the directory of the process."""

    def file(suffix: str) -> Path:
        return config.directory / f"{config.driver.name}.{suffix}"

    context = DriverContext(
        file, on_progress=on_progress, may_act=may_act, service_pid=os.getpid(), hosts=config.hosts
    )
    return registry.make(config.driver, context)


def name_problem(config: DriverProcessConfig, pair: Pair) -> str:
    """Return why a certificate that can be used is not that of this process, or ""."""
    named = [n.removeprefix(DRIVER_URI) for n in pair.names if n.startswith(DRIVER_URI)]
    missing = [f"URI:{DRIVER_URI}{host}" for host in config.hosts if host not in named]
    if pair.problem or not missing:
        return ""
    return (
        f"{config.tls.certificate} is not for the driver process of {listing(config.hosts)}; it"
        f" lacks {listing(missing)}"
    )
