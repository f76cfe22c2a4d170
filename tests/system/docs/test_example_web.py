"""examples/web-behind-haproxy with a real HAProxy, real agents and machines that are really killed:
a rollout reboots all of them, and nobody who asks meanwhile notices."""

from __future__ import annotations

import re
import shutil

import pytest

from helpers.example_runs import play
from helpers.netns import require

EXAMPLE = "web-behind-haproxy"
WHERE = "/usr/sbin:/usr/bin:/usr/local/sbin"


@pytest.fixture(autouse=True)
def _needs_haproxy() -> None:
    require(shutil.which("haproxy", path=WHERE), "haproxy: apt-get install haproxy")


def test_each_machine_is_rebooted_in_turn_under_load_and_no_request_fails() -> None:
    code, output = play(EXAMPLE)
    assert code == 0, output
    boots = re.findall(
        r"^web_[012] was rebooted: it was boot (\w+), now it is (\w+)$", output, re.M
    )
    assert len({boot for both in boots for boot in both}) == 6
    requests, failed = re.findall(r"(\d+) requests were answered, (\d+) failed", output)[0]
    assert int(requests) > 100
    assert failed == "0"


def test_without_agents_requests_fail() -> None:
    code, output = play(EXAMPLE, "--without-agents")
    assert code == 1
    assert re.search(r"answered, [1-9]\d* failed\nbroken: requests failed: \d+ with 502", output), (
        output
    )
