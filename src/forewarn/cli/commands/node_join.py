"""`forewarn node join`: enrolls this host, and starts its node."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from forewarn.cli.output import fail, fail_all, say
from forewarn.node import install_rules
from forewarn.node.config import Address
from forewarn.node.join import CannotJoin, Files, Token, ask, check, start_units
from forewarn.node.preflight.host_node import node_findings
from forewarn.node.settings.host_node import load_node
from forewarn.node.settings.model import SettingsError


def join(
    config: Path,
    directory: Path,
    control: Sequence[str],
    token: str,
    host: str,
    *,
    start: bool,
    rules: bool,
) -> None:
    files = Files(config, directory)
    try:
        addresses = [Address.parse(text) for text in control]
        parsed = Token.parse(token)
        if problem := files.problem() or (install_rules.problem() if rules else ""):
            fail(problem)
        joined = asyncio.run(ask(addresses, parsed, host))
        check(joined, files)
        files.write(joined)
        installed = install_rules.install(config) if rules else []
    except (CannotJoin, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'cannot write'}: {error.strerror}")
    say(f"this is host '{joined.issued.host}' now; its settings are in {config}")
    for path in installed:
        say(f"installed {path}")
    try:
        findings = list(node_findings(load_node(config, os.environ), config))
    except SettingsError as error:
        fail_all(error.problems)
    for finding in findings:
        say(f"warning: {finding.message}", err=True)
    if not start:
        return
    if problem := start_units():
        fail(
            f"the node was not started: {problem}; start it with 'forewarn node --config {config}'"
        )
    if rules and (problem := install_rules.run()):
        fail(f"the node is started, but the network rules are not in force: {problem}")
    say("the node is started; 'systemctl status forewarn-node' shows whether it has joined")
