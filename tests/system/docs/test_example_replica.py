"""examples/primary-and-replica with two real Redis servers and a machine that is really frozen: the
replica has taken over before that, and no acknowledged write is lost."""

from __future__ import annotations

import re
import shutil

import pytest

from helpers.example_runs import play
from helpers.netns import require

EXAMPLE = "primary-and-replica"


@pytest.fixture(autouse=True)
def _needs_redis() -> None:
    require(shutil.which("redis-server"), "redis-server: apt-get install redis-server")


def test_the_replica_takes_over_before_the_freeze_and_no_acknowledged_write_is_lost() -> None:
    code, output = play(EXAMPLE)
    assert code == 0, output
    assert re.search(r"db-1 .* primary\ndb-0 .* replica\n", output)
    [lost] = re.findall(r"writes were acknowledged, (\d+) of them lost", output)
    assert lost == "0"
    assert _meanwhile(output) >= 2


def test_without_agents_nobody_can_write_while_the_primary_stands_still() -> None:
    code, output = play(EXAMPLE, "--without-agents")
    assert code == 1
    assert re.search(r"db-1 .* replica\ndb-0 .* primary\n", output)
    assert _meanwhile(output) < 2


def _meanwhile(output: str) -> int:
    [writes] = re.findall(r"^(\d+) were acknowledged while db-0 stood still", output, re.M)
    return int(writes)
