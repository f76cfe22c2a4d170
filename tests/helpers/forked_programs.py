"""Scenarios whose programs are forked, not started (see forked_cli.py), where a test is about what
they do and there are hundreds of them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from forewarn.testing.enclosure import start
from helpers.forked_cli import Forked, fork_server, is_program


def fork_programs(patch: pytest.MonkeyPatch) -> None:
    """Let every scenario fork its command, if that is a Python program without a namespace."""
    really_start = start.start
    fork_server()

    def start_or_fork(
        argv: Sequence[str], namespaces: Sequence[tuple[int, int]], **details: Any
    ) -> subprocess.Popen[Any]:
        if namespaces or not is_program(argv):
            return really_start(argv, namespaces, **details)
        return Forked(argv, **details)

    patch.setattr(start, "start", start_or_fork)
