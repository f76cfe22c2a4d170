"""`forewarn node join` and `forewarn driver join`: enroll this host, and start its node or its
driver process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from forewarn.cli.output import fail, fail_all, say
from forewarn.node import install_rules
from forewarn.node.config import Address
from forewarn.node.join import (
    DRIVER_UNITS,
    NODE_UNITS,
    CannotJoin,
    Files,
    Token,
    ask,
    check,
    start_units,
)
from forewarn.node.settings.model import SettingsError
from forewarn.support.finding import Finding


def join(
    config: Path,
    directory: Path,
    control: str,
    token: str,
    host: str,
    *,
    start: bool,
    rules: bool = False,
    driver: bool = False,
) -> None:
    files = Files(config, directory, driver=driver)
    try:
        addresses = [Address.parse(text) for text in control.split(",")]
        parsed = Token.parse(token)
        if problem := files.problem() or (install_rules.problem() if rules else ""):
            fail(problem)
        joined = asyncio.run(ask(addresses, parsed, host, driver=driver))
        check(joined, files)
        files.write(joined)
        installed = install_rules.install(config) if rules else []
    except (CannotJoin, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'cannot write'}: {error.strerror}")
    settings = "the settings of its driver" if driver else "its settings"
    say(f"this is host '{joined.issued.host}' now; {settings} are in {config}")
    for path in installed:
        say(f"installed {path}")
    try:
        findings = list(_driver_findings(config) if driver else _node_findings(config))
    except SettingsError as error:
        fail_all(error.problems)
    for finding in findings:
        say(f"warning: {finding}", err=True)
    if not start:
        return
    program = "driver" if driver else "node"
    if problem := start_units(DRIVER_UNITS if driver else NODE_UNITS):
        command = f"forewarn {program} --config {config}"
        fail(f"the {program} was not started: {problem}; start it with '{command}'")
    if rules and (problem := install_rules.run()):
        fail(f"the node is started, but the network rules are not in force: {problem}")
    shows = "forewarn host list" if driver else "systemctl status forewarn-node"
    say(f"the {program} is started; '{shows}' shows whether it has joined")


def _node_findings(config: Path) -> Iterator[Finding]:
    from forewarn.node.preflight.host_node import node_findings
    from forewarn.node.settings.host_node import load_node

    return node_findings(load_node(config, os.environ), config)


def _driver_findings(config: Path) -> Iterator[Finding]:
    from forewarn.node.preflight.driver_process import driver_findings
    from forewarn.node.settings.driver_process import load_driver

    return driver_findings(load_driver(config), config)
