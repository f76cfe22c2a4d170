"""Checks the settings of a driver process against its host: the certificate, the directory, and the
driver. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from forewarn.drivers.hosts.fences import FILE
from forewarn.drivers.port import Driver
from forewarn.node.driver_process import make_driver, name_problem
from forewarn.node.listening.certificates import examine
from forewarn.node.preflight.finding import fatal
from forewarn.node.preflight.key_pair import pair_findings
from forewarn.node.preflight.state_file import directory_findings
from forewarn.node.preflight.unit import unit_findings
from forewarn.node.settings.driver_process import LoadedDriverSettings
from forewarn.support.finding import Finding

UNIT = "forewarn-driver.service"
CHECK = "forewarn-driver check"  # as the package of a node has it


def driver_findings(loaded: LoadedDriverSettings, path: Path | None) -> Iterator[Finding]:
    config, origins = loaded.config, loaded.service
    tls = config.tls
    pair = examine(tls.certificate, tls.key, config.authority, of_client=True)
    yield from pair_findings(origins, "", tls, pair, "control nodes")
    if problem := name_problem(config, pair):
        yield fatal(origins, "certificate", problem)
    exists = config.directory.exists()  # otherwise, the process creates it
    file = config.directory / FILE if exists else config.directory
    yield from directory_findings(origins, "directory", file)
    try:
        problem = asyncio.run(_problem(make_driver(config)))
    except Exception as error:  # whatever a foreign driver raises
        problem = str(error) or repr(error)
    if problem:
        yield fatal(origins, "driver", f"{config.driver.name}: {problem}")
    yield from unit_findings(origins, path, unit=UNIT, check=CHECK)


async def _problem(driver: Driver) -> str:
    try:
        await driver.open()
        return driver.problem()
    finally:
        await driver.aclose()
