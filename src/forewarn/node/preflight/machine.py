"""What may be wrong on this machine with settings that are right in themselves: files that cannot
be written, addresses that are not here, keys that others can read. Only looks; changes nothing.

A problem keeps the service from starting; a warning may be as it is meant to be.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import resource
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from forewarn.node import Address, Config
from forewarn.node.listening.certificates import EXPIRES_SOON, examine
from forewarn.node.open_files import files_for_guests
from forewarn.node.preflight.finding import Finding, fatal, warning
from forewarn.node.preflight.state_file import (
    directory_findings,
    state_findings,
    writable_by_others,
)
from forewarn.node.settings import LoadedSettings
from forewarn.store.engines import stored_state
from forewarn.support import guard
from forewarn.support.program import find_program
from forewarn.support.text import listing

_IN_USE = (
    "If that is systemd's socket for this service, all is well; else stop whoever listens there"
    " (ss -ltnp), or choose another"
)


def findings(said: LoadedSettings, config: Config, path: Path | None) -> Iterator[Finding]:
    yield from _settings_file(path)
    yield from _fleet(config)
    yield from state_findings(said, config)
    yield from directory_findings(said, "record", config.record)
    if config.workers:
        yield from directory_findings(said, "upstream", config.upstream)
    yield from _addresses(said, config)
    yield from _certificate(said, config)
    yield from _programs(config)
    yield from _workers(said, config)
    yield from _open_files(said, config)
    yield from _traces(said)


def _settings_file(path: Path | None) -> Iterator[Finding]:
    if path is not None and writable_by_others(path):
        yield Finding(
            f"{path} can be written by others, and names programs that are run: chmod go-w {path}"
        )


def _fleet(config: Config) -> Iterator[Finding]:
    machines = config.fleet.machines if config.fleet else []
    silent = [machine.name for machine in machines if not machine.addresses]
    if silent:
        yield Finding(f"fleet: these machines have no address and cannot poll: {listing(silent)}")


def _addresses(said: LoadedSettings, config: Config) -> Iterator[Finding]:
    """Whether they could be bound to. Under systemd the sockets may be handed over, and then it
    does not matter; hence a warning."""
    served = config.state is not None and stored_state(config.state).in_use()
    guests = [("metadata", address) for address in config.guest_addresses]
    operators = [("control", config.control)] if config.control is not None else []
    for key, address in (*guests, *operators):
        if says := _not_to_be_had(address, served):
            yield warning(said, key, says)
        if 0 < address.port < _first_free_port() and os.geteuid() != 0:
            yield warning(
                said,
                key,
                f"port {address.port} needs privileges: have the socket handed over by systemd,"
                " or allow it (CAP_NET_BIND_SERVICE)",
            )


def _not_to_be_had(address: Address, served: bool) -> str:
    """Where a service is at work on the state, it is the one that listens."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((address.host, address.port))
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return (
                f"{address.host} is not an address of this machine; add it to an interface, for"
                f" example ip address add {address.host}/{128 if ':' in address.host else 32}"
                " dev lo"
            )
        if error.errno == errno.EADDRINUSE:
            return "" if served else f"{address} is in use. {_IN_USE}"
        # A port that needs privileges is told of as that.
        return "" if error.errno == errno.EACCES else f"{address.host}: {error.strerror or error}"
    return ""


def _first_free_port() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text("ascii")
        return int(text)
    except (OSError, ValueError):
        return 1024


def _certificate(said: LoadedSettings, config: Config) -> Iterator[Finding]:
    if config.tls is None:
        return
    key = config.tls.key
    pair = examine(config.tls.certificate, key)
    if pair.problem:
        yield fatal(said, "tls_certificate", pair.problem)
        return
    if stat.S_IMODE(key.stat().st_mode) & 0o077:
        yield warning(said, "tls_key", f"{key} can be read by others: chmod 600 {key}")
    left = pair.ends - guard.wall_us() / 1e6
    if left < EXPIRES_SOON:
        yield warning(
            said,
            "tls_certificate",
            f"{config.tls.certificate} expires in {max(0, int(left // 86_400))} days",
        )
    for name in config.control_names:
        if name not in pair.names and f"*.{name.partition('.')[2]}" not in pair.names:
            good = listing(pair.names) if pair.names else "no name"
            yield warning(
                said, "control_names", f"the certificate is not good for '{name}', but for {good}"
            )


def _programs(config: Config) -> Iterator[Finding]:
    """That they can be run has been checked; the question is who decides what they do."""
    driver, options = config.driver.name, config.driver.options
    programs = {
        f"{driver}.{key}": find_program(getattr(options, key))[0] for key in options.programs
    }
    programs |= {f"gate '{name}'": words[0] for name, words in config.gates.items()}
    for what, program in programs.items():
        if writable_by_others(Path(program)):
            yield Finding(
                f"{what}: {program} can be written by others, and is run by the service:"
                f" chmod go-w {program}"
            )


def _workers(said: LoadedSettings, config: Config) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    if config.workers > cores:
        yield warning(
            said, "workers", f"{config.workers} processes for guests on {cores} processor cores"
        )
    if config.workers and config.state is None:
        yield fatal(said, "workers", "several processes need a state file")


def _open_files(said: LoadedSettings, config: Config) -> Iterator[Finding]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files_for_guests(config)
    if most != resource.RLIM_INFINITY and most < wanted:
        yield warning(
            said,
            "max_connections",
            f"{config.limits.max_connections} connections take {wanted} open files, and the system"
            f" allows {most} here; raise it with ulimit -n or LimitNOFILE=",
        )


def _traces(said: LoadedSettings) -> Iterator[Finding]:
    if said.settings.traces and not importlib.util.find_spec("opentelemetry"):
        yield fatal(
            said, "traces", "traces need more packages: pip install 'forewarn[server,otel]'"
        )
