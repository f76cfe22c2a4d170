"""A node that holds back what it was told, and one whose disk is full, or fails."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from forewarn.metadata.publishing.journal import Journal
from forewarn.metadata.publishing.node_upstream import (
    MAX_DIAL_PAUSE,
    MIN_DIAL_PAUSE,
    NodeUpstream,
)
from forewarn.service.engine.clock import FollowedClock
from forewarn.support import guard
from helpers.host_nodes import Control, host_node, until


class Enough(Exception):
    pass


def fail(directory: Path) -> Path:
    """Have every attempt to replace the journal in a directory fail, until what is returned is
    removed."""
    obstacle = directory / "journal.new"
    obstacle.mkdir(parents=True)
    return obstacle


def test_a_node_that_loses_its_line_again_at_once_waits_before_it_opens_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        journal = Journal(tmp_path, "h1")
        upstream = NodeUpstream([], "h1", FollowedClock(), journal)
        pauses = []
        for now in (100.0, 100.5, 101.0, 150.0):
            monkeypatch.setattr(guard, "monotonic", lambda now=now: now)
            pauses.append(upstream._pause_after_line())
        assert pauses == [MIN_DIAL_PAUSE, MAX_DIAL_PAUSE, MAX_DIAL_PAUSE, MIN_DIAL_PAUSE]
        journal.close()

    asyncio.run(body())


def test_a_node_that_cannot_write_its_journal_tries_less_and_less_often_and_leaves_control_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            raise Enough

    async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise AssertionError("control was asked")

    async def body() -> None:
        journal = Journal(tmp_path, "h1")
        upstream = NodeUpstream([dial], "h1", FollowedClock(), journal)
        await upstream.restore()
        with pytest.raises(Enough):
            await upstream.run()
        assert upstream.journal_problem == f"{journal.path}: {os.strerror(errno.EISDIR)}"
        journal.close()

    monkeypatch.setattr(guard, "pause", pause)
    fail(tmp_path)
    with capture_logs() as lines:
        asyncio.run(body())
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert [line["log_level"] for line in lines] == ["error"]
    assert "journal" in lines[0]["event"]


def test_a_node_with_a_full_disk_shows_what_it_was_told_and_joins_when_there_is_room(
    tmp_path: Path,
) -> None:
    control = Control(tmp_path)

    async def body() -> None:
        async with control():
            async with host_node(control, "h1") as h1:
                await until(lambda: h1.upstream._joined.is_set())
                obstacle = fail(tmp_path / "journal-h1")
                h1.cut()
                await until(lambda: bool(h1.upstream.journal_problem))
                assert not h1.upstream._joined.is_set()
                obstacle.rmdir()
                await until(lambda: h1.upstream._joined.is_set())
                assert h1.upstream.journal_problem == ""
                before = h1.of["web"]
            obstacle = fail(tmp_path / "journal-h1")
            async with host_node(control, "h1") as h1:  # it is started again
                assert h1.upstream.journal_problem
                assert h1.of["web"] == before
                obstacle.rmdir()
                await until(lambda: h1.upstream._joined.is_set())

    asyncio.run(body())
