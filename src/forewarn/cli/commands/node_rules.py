"""`forewarn node rules`: the machines that a node answers, as elements of its host's packet filter.

The machines come from the node while it runs, otherwise from its journal. `forewarn-guests`, which
is installed with the rules and in the package of the node, combines them with the file of ports.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import typer

from forewarn.cli.output import fail, fail_all
from forewarn.metadata.publishing.journal import FILE, JournalUnusable, read_journal
from forewarn.metadata.publishing.node_upstream import replay
from forewarn.metadata.publishing.staged_views import StagedViews
from forewarn.node.config import HostNodeConfig
from forewarn.node.listening.status_pages import NOT_SYNCHRONIZED, list_machines
from forewarn.node.settings.host_node import load_node
from forewarn.node.settings.model import SettingsError

FILLER = "forewarn-guests"
DRIVER_PORTS = Path("/run/forewarn-driver/ports")  # where the driver process of this host sees them
ASK_WITHIN = 10.0  # seconds in which the node has to answer
MAX_ANSWER = 64 * 1024 * 1024  # bytes


def rules(config: Path | None, flags: Mapping[str, Any], ports: Path, *, learned: bool) -> None:
    """Print the transaction, or what was learned."""
    try:
        loaded = load_node(config, os.environ, flags)
    except SettingsError as error:
        fail_all(error.problems)
    packaged = Path(sys.executable).parent
    filler = shutil.which(FILLER) or shutil.which(FILLER, path=str(packaged))
    if filler is None:
        fail(f'{FILLER} is not in PATH; see "Networking for guests" in the documentation')
    seen = [str(DRIVER_PORTS)] if DRIVER_PORTS.exists() else []
    what = ["--learned"] if learned else [str(ports), *seen]
    command = [filler, *what, "--machines=-", "--one-host"]
    sys.stdout.flush()
    status = subprocess.run(command, input=machines(loaded.config), check=False).returncode
    if status != 0:
        raise typer.Exit(1)


def machines(config: HostNodeConfig) -> bytes:
    """Return the machines that the node of this host answers, in JSON."""
    answer = None if config.status is None else _ask(f"http://{config.status}/machines")
    return _from_journal(config) if answer is None else answer


def _ask(url: str) -> bytes | None:
    """Return the answer of the node; None if it is not running."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=ASK_WITHIN) as answer:
            content: bytes = answer.read(MAX_ANSWER)
            return content
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 503:
            fail(f"{url}: {NOT_SYNCHRONIZED}")
        fail(
            f"{url}: {error.code} {error.reason}; this is another program, or a node of another"
            " version"
        )
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ConnectionRefusedError):
            return None
        fail(f"{url}: {getattr(reason, 'strerror', None) or reason}")


def _from_journal(config: HostNodeConfig) -> bytes:
    path, staged = config.journal / FILE, StagedViews()
    try:
        last = asyncio.run(replay(read_journal(path, config.host), staged))
    except JournalUnusable as error:
        fail(f"the node does not answer, and its journal {path} cannot be used: {error}")
    except OSError as error:
        fail(f"the node does not answer, and its journal {path} cannot be read: {error.strerror}")
    if last is None:
        fail(f"the node does not answer, and according to its journal {path}, {NOT_SYNCHRONIZED}")
    return msgspec.json.encode(list_machines(staged.machines()))
