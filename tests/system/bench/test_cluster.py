"""The benchmark of nodes on hosts runs, in small; what it measures here means nothing."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from helpers.paths import ROOT, TESTS


@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="the benchmark needs two cores")
def test_a_scenario_of_nodes_on_hosts_ends_with_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{TESTS}")
    part = importlib.import_module("bench.cluster.__main__").PARTS["hosts"]
    small = type(part.plan)(rounds=1, seconds=0.1, samples=2, machines=100)
    scenario = part.scenarios["seen"]  # has control, nodes and guests
    found = scenario.run(small, tmp_path)
    assert scenario.show(found)
    assert list(part.targets({"seen": found}))
