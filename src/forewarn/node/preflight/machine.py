"""Checks valid settings against this machine: files that cannot be written, addresses that it does
not have, keys that other users can read. Changes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from forewarn.node import Config
from forewarn.node.listening.certificates import examine, readable_by_all
from forewarn.node.listening.unix_socket import other_file
from forewarn.node.preflight.addresses import address_findings, open_files_findings
from forewarn.node.preflight.finding import fatal, warning
from forewarn.node.preflight.key_pair import pair_findings
from forewarn.node.preflight.state_file import (
    directory_findings,
    file_problem,
    state_findings,
    writable_by_others,
)
from forewarn.node.preflight.unit import unit_findings
from forewarn.node.settings import LoadedSettings
from forewarn.notify.notifications import problems as notify_problems
from forewarn.service.access.authority import KEY, Authority, AuthorityUnusable
from forewarn.service.access.issuer_keys import IssuerUnavailable, fetch_keys
from forewarn.service.engine import otel
from forewarn.store.engines import stored_state
from forewarn.support.finding import Finding, note
from forewarn.support.program import find_program
from forewarn.support.text import listing


def findings(loaded: LoadedSettings, config: Config, path: Path | None) -> Iterator[Finding]:
    yield from _settings_file(path)
    yield from _fleet(config)
    yield from state_findings(loaded, config)
    yield from _record(loaded, config)
    yield from _addresses(loaded, config)
    yield from _local_node(loaded, config)
    yield from _certificate(loaded, config)
    yield from _identities(loaded)
    yield from _issuer(loaded, config)
    yield from _programs(config)
    yield from open_files_findings(loaded, config)
    yield from _traces(loaded)
    yield from unit_findings(
        *(loaded, path),
        unit="forewarn.service",
        check="forewarn config check",
    )
    yield from _notify(loaded, config)


def _issuer(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    if config.oidc is None:
        return
    try:
        asyncio.run(fetch_keys(config.oidc))
    except IssuerUnavailable as error:
        yield warning(
            loaded,
            "oidc",
            f"the keys of the issuer cannot be fetched now: {error}. Until they can, its tokens are"
            " not accepted",
        )


def _settings_file(path: Path | None) -> Iterator[Finding]:
    if path is not None and writable_by_others(path):
        yield note(
            str(path),
            "can be written by other users, and names programs that the service runs:"
            f" chmod go-w {path}",
        )


def _fleet(config: Config) -> Iterator[Finding]:
    machines = config.fleet.machines if config.fleet else []
    names = [machine.name for machine in machines if not machine.addresses]
    if names:
        yield note("fleet", f"these machines have no address and cannot poll: {listing(names)}")


def _record(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    yield from directory_findings(loaded, "record", config.record)
    if config.record is not None and (problem := file_problem(config.record)):
        yield fatal(loaded, "record", problem)


def _addresses(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    running = isinstance(config.state, Path) and stored_state(config.state).in_use()
    addresses = [("metadata", address) for address in config.guest_addresses]
    if config.control is not None:
        addresses.append(("control", config.control))
    if config.arm is not None:
        addresses.append(("arm", config.arm.address))
    if config.nodes is not None:
        addresses.append(("nodes", config.nodes.address))
    yield from address_findings(loaded, addresses, running)


def _local_node(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    """Check whether the socket for the node on this host can be opened. If it is there, it is that
    of systemd, of this service, or of one that has ended."""
    if config.local_node is None or (path := config.local_node.path).is_socket():
        return
    if problem := other_file(path, "nodes"):
        yield fatal(loaded, "nodes", problem)
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        yield warning(
            loaded,
            "nodes",
            f"{path} cannot be created by this user: let systemd hand the socket over"
            " (forewarn-nodes.socket), or choose a directory that this user can write to",
        )


def _identities(loaded: LoadedSettings) -> Iterator[Finding]:
    file = Path(loaded.settings.identities)
    if loaded.settings.identities and readable_by_all(file):
        yield warning(loaded, "identities", f"{file} can be read by all users: chmod o= {file}")


def _certificate(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    if (lines := config.nodes) is not None and lines.keeps is not None:
        try:
            Authority(lines.keeps)
        except AuthorityUnusable as error:
            yield fatal(loaded, "authority", str(error))
        else:
            if readable_by_all(key := lines.keeps / KEY):
                problem = f"{key} can be read by all users: chmod o= {key}"
                yield warning(loaded, "authority", problem)
    elif lines is not None and lines.tls is not None:
        pair = examine(lines.tls.certificate, lines.tls.key, lines.authority)
        yield from pair_findings(loaded, "nodes_", lines.tls, pair, "nodes")
    if config.tls is None:
        return
    pair = examine(config.tls.certificate, config.tls.key)
    yield from pair_findings(loaded, "tls_", config.tls, pair, "clients")
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


def _programs(config: Config) -> Iterator[Finding]:
    """Check that no other user can change the programs that the service runs."""
    driver, options = config.driver.name, config.driver.options
    programs = {
        f"{driver}.{key}": find_program(getattr(options, key))[0] for key in options.programs
    }
    programs |= {f"gate '{name}'": command[0] for name, command in config.gates.items()}
    for setting, program in programs.items():
        if writable_by_others(Path(program)):
            yield note(
                setting,
                f"{program} can be written by other users, and is run by the service:"
                f" chmod go-w {program}",
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
