"""examples/batch-on-spot: a job whose machine is taken back goes on elsewhere from where it was."""

from __future__ import annotations

import re

from helpers.example_runs import play

EXAMPLE = "batch-on-spot"


def test_an_evicted_job_loses_at_most_a_second_of_its_work() -> None:
    code, output = play(EXAMPLE)
    assert code == 0, output
    twice, second = _lost(output)
    assert twice <= second


def test_a_job_that_does_not_listen_loses_more() -> None:
    code, output = play(EXAMPLE, "--deaf")
    assert code == 1
    twice, second = _lost(output)
    assert twice > second


def _lost(output: str) -> tuple[int, int]:
    """How many units were done twice, and how many are done in a second."""
    [(twice, second)] = re.findall(r"^done twice: (\d+)\. In a second it does (\d+)$", output, re.M)
    return int(twice), int(second)
