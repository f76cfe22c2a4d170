"""Checks the settings of a node against its host: the certificate, control's socket, the journal,
the addresses, and the systemd unit that runs the node with them. Changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from forewarn.metadata.publishing.journal import FILE, JournalUnusable, in_use, read_journal
from forewarn.node.config import HostNodeConfig
from forewarn.node.host_node import name_problem
from forewarn.node.listening.certificates import examine
from forewarn.node.listening.unix_socket import other_file
from forewarn.node.preflight.addresses import address_findings, open_files_findings
from forewarn.node.preflight.finding import fatal, warning
from forewarn.node.preflight.key_pair import pair_findings
from forewarn.node.preflight.state_file import directory_findings, file_problem
from forewarn.node.preflight.unit import unit_findings
from forewarn.node.settings import LoadedSettings
from forewarn.node.settings.host_node import LoadedNodeSettings
from forewarn.support.finding import Finding

UNIT = "forewarn-node.service"
CHECK = "forewarn-node check"  # as the package of a node has it


def node_findings(loaded: LoadedNodeSettings, path: Path | None) -> Iterator[Finding]:
    config, origins = loaded.config, loaded.endpoint
    yield from _certificate(origins, config)
    yield from _control_sockets(origins, config)
    yield from _journal(origins, config)
    record = config.endpoint.record
    yield from directory_findings(origins, "record", record)
    if record is not None and (problem := file_problem(record)):
        yield fatal(origins, "record", problem)
    addresses = [("metadata", address) for address in config.endpoint.guest_addresses]
    if config.status is not None:
        addresses.append(("status", config.status))
    yield from address_findings(origins, addresses, in_use(config.journal))
    yield from open_files_findings(origins, config.endpoint)
    yield from unit_findings(origins, path, unit=UNIT, check=CHECK)


def _control_sockets(loaded: LoadedSettings, config: HostNodeConfig) -> Iterator[Finding]:
    for path in config.control:
        if not isinstance(path, Path):
            continue
        if problem := other_file(path, "control"):
            yield fatal(loaded, "control", problem)
        elif not path.exists():
            yield warning(
                loaded,
                "control",
                f"{path} does not exist yet; control opens it (its setting nodes)",
            )
        elif not os.access(path, os.W_OK):
            yield fatal(
                loaded,
                "control",
                f"{path} cannot be opened by user {os.geteuid()}: it belongs to user"
                f" {path.stat().st_uid}. Run the node as that user, or set SocketUser= in the"
                " socket unit",
            )


def _certificate(loaded: LoadedSettings, config: HostNodeConfig) -> Iterator[Finding]:
    if config.tls is None:
        return
    pair = examine(config.tls.certificate, config.tls.key, config.authority, of_client=True)
    yield from pair_findings(loaded, "", config.tls, pair, "control nodes")
    if problem := name_problem(config.host, config.tls, pair):
        yield fatal(loaded, "certificate", problem)


def _journal(loaded: LoadedSettings, config: HostNodeConfig) -> Iterator[Finding]:
    file = config.journal / FILE
    if not config.journal.exists() and os.access(config.journal.parent, os.W_OK | os.X_OK):
        return  # the node creates it
    yield from directory_findings(loaded, "journal", file)
    if problem := file_problem(file):
        yield fatal(loaded, "journal", problem)
        return
    try:
        read_journal(file, config.host)
    except FileNotFoundError:
        pass
    except OSError as error:
        yield fatal(loaded, "journal", f"{file}: {error.strerror}")
    except JournalUnusable as error:
        yield warning(
            loaded,
            "journal",
            f"{file} cannot be used, so nobody is answered before control has told this node"
            f" everything: {error}",
        )
