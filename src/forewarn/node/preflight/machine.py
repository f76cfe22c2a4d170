"""Checks valid settings against this machine: files that cannot be written, addresses that it does
not have, keys that other users can read. Changes nothing.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from forewarn.control.notify.notifications import problems as notify_problems
from forewarn.node import Address, Config
from forewarn.node.config import Tls
from forewarn.node.listening.certificates import EXPIRES_SOON, Pair, examine, readable_by_all
from forewarn.node.open_files import files_for_guests
from forewarn.node.preflight.finding import Finding, fatal, warning
from forewarn.node.preflight.state_file import (
    directory_findings,
    file_problem,
    state_findings,
    writable_by_others,
)
from forewarn.node.preflight.unit import unit_findings
from forewarn.node.settings import LoadedSettings
from forewarn.service.access.issuer_keys import IssuerUnavailable, fetch_keys
from forewarn.service.engine import otel
from forewarn.store.engines import stored_state
from forewarn.support import guard
from forewarn.support.program import find_program
from forewarn.support.text import listing

_IN_USE = (
    "This is fine if systemd listens there for this service; otherwise stop the program that does"
    " (ss -ltnp), or choose another address"
)


def findings(loaded: LoadedSettings, config: Config, path: Path | None) -> Iterator[Finding]:
    yield from _settings_file(path)
    yield from _fleet(config)
    yield from state_findings(loaded, config)
    yield from _record(loaded, config)
    yield from _upstream(loaded, config)
    yield from _addresses(loaded, config)
    yield from _certificate(loaded, config)
    yield from _issuer(loaded, config)
    yield from _programs(config)
    yield from _workers(loaded, config)
    yield from _open_files(loaded, config)
    yield from _traces(loaded)
    yield from unit_findings(loaded, config, path)
    yield from _notify(loaded, config)


def _issuer(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    if config.oidc is None:
        return
    try:
        fetch_keys(config.oidc)
    except IssuerUnavailable as error:
        yield warning(
            loaded,
            "oidc",
            f"the keys of the issuer cannot be fetched now: {error}. Until they can, its tokens are"
            " not accepted",
        )


def _settings_file(path: Path | None) -> Iterator[Finding]:
    if path is not None and writable_by_others(path):
        yield Finding(
            f"{path} can be written by other users, and names programs that the service runs:"
            f" chmod go-w {path}"
        )


def _fleet(config: Config) -> Iterator[Finding]:
    machines = config.fleet.machines if config.fleet else []
    names = [machine.name for machine in machines if not machine.addresses]
    if names:
        yield Finding(f"fleet: these machines have no address and cannot poll: {listing(names)}")


def _record(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    yield from directory_findings(loaded, "record", config.record)
    if config.record is not None and (problem := file_problem(config.record)):
        yield fatal(loaded, "record", problem)


def _upstream(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    if not config.workers or config.upstream is None:
        return
    yield from directory_findings(loaded, "upstream", config.upstream)
    if config.upstream.exists() and not config.upstream.is_socket():
        yield fatal(
            loaded, "upstream", f"{config.upstream} exists and is not a socket; choose another path"
        )


def _addresses(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    """Check whether the addresses can be bound. These are only warnings, because systemd may hand
    the sockets over."""
    running = isinstance(config.state, Path) and stored_state(config.state).in_use()
    guests = [("metadata", address) for address in config.guest_addresses]
    operators = [("control", config.control)] if config.control is not None else []
    if config.nodes is not None:
        operators.append(("nodes", config.nodes.address))
    for key, address in (*guests, *operators):
        if problem := _bind_problem(address, running):
            yield warning(loaded, key, problem)
        if 0 < address.port < _first_unprivileged_port() and os.geteuid() != 0:
            yield warning(
                loaded,
                key,
                f"port {address.port} needs privileges: let systemd hand the socket over, or give"
                " the service CAP_NET_BIND_SERVICE",
            )


def _bind_problem(address: Address, running: bool) -> str:
    """Return why an address cannot be bound, or "". If the service is running, it is assumed to be
    the one that uses the address."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address.host, address.port))
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return (
                f"{address.host} is not an address of this machine; add it to an interface, for"
                f" example ip address add {address.host}/{128 if ':' in address.host else 32}"
                " dev lo"
            )
        if error.errno == errno.EADDRINUSE:
            return "" if running else f"{address} is in use. {_IN_USE}"
        # A port that needs privileges has a warning of its own.
        return "" if error.errno == errno.EACCES else f"{address.host}: {error.strerror or error}"
    return ""


def _first_unprivileged_port() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text("ascii")
        return int(text)
    except (OSError, ValueError):
        return 1024


def _certificate(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    if (lines := config.nodes) is not None:
        pair = examine(lines.tls.certificate, lines.tls.key, lines.authority)
        yield from _pair_findings(loaded, "nodes", lines.tls, pair, "nodes")
    if config.tls is None:
        return
    pair = examine(config.tls.certificate, config.tls.key)
    yield from _pair_findings(loaded, "tls", config.tls, pair, "clients")
    if pair.problem:
        return
    for name in config.control_names:
        if name not in pair.names and f"*.{name.partition('.')[2]}" not in pair.names:
            valid = listing(pair.names) if pair.names else "no name"
            yield warning(
                loaded,
                "control_names",
                f"the certificate is not valid for '{name}', but for {valid}",
            )


def _pair_findings(
    loaded: LoadedSettings, prefix: str, tls: Tls, pair: Pair, peers: str
) -> Iterator[Finding]:
    """Yield what is wrong with a certificate and its key, of the settings with this prefix."""
    if not pair.usable:
        yield fatal(loaded, f"{prefix}_certificate", pair.problem)
        return
    if readable_by_all(tls.key):
        problem = f"{tls.key} can be read by all users: chmod o= {tls.key}"
        yield warning(loaded, f"{prefix}_key", problem)
    if pair.problem:  # the service starts nevertheless: its guests need it
        yield warning(loaded, f"{prefix}_certificate", f"{pair.problem}, so {peers} refuse it")
        return
    left = pair.expires - guard.wall_us() / 1e6
    if left < EXPIRES_SOON:
        days = max(0, int(left // 86_400))
        yield warning(loaded, f"{prefix}_certificate", f"{tls.certificate} expires in {days} days")


def _programs(config: Config) -> Iterator[Finding]:
    """Check that no other user can change the programs that the service runs."""
    driver, options = config.driver.name, config.driver.options
    programs = {
        f"{driver}.{key}": find_program(getattr(options, key))[0] for key in options.programs
    }
    programs |= {f"gate '{name}'": command[0] for name, command in config.gates.items()}
    for setting, program in programs.items():
        if writable_by_others(Path(program)):
            yield Finding(
                f"{setting}: {program} can be written by other users, and is run by the service:"
                f" chmod go-w {program}"
            )


def _workers(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    if config.workers > cores:
        yield warning(
            loaded,
            "workers",
            f"{config.workers} workers are more than this machine has processor cores ({cores})",
        )
    if config.workers and config.state is None:
        yield fatal(loaded, "workers", "workers need a state file")


def _open_files(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    import resource

    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = files_for_guests(config)
    if hard_limit != resource.RLIM_INFINITY and hard_limit < needed:
        yield warning(
            loaded,
            "max_connections",
            f"{config.limits.max_connections} connections need {needed} open files, but the system"
            f" allows {hard_limit} here; raise it with ulimit -n or LimitNOFILE=",
        )


def _traces(loaded: LoadedSettings) -> Iterator[Finding]:
    if loaded.settings.traces and not otel.installed():
        yield fatal(
            loaded,
            "traces",
            "OpenTelemetry is not installed: pip install 'forewarn[server,otel]'",
        )


def _notify(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    numbers = {table.name: number for number, table in enumerate(config.notify)}
    for name, problem in notify_problems(config.notify):
        yield fatal(loaded, f"notify.{numbers[name]}", f"notify '{name}': {problem}")
