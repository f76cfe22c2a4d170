"""The benchmark of nodes on hosts runs, in small; what it measures here means nothing."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SCENARIOS = ("polls", "told", "told-one", "seen", "silent", "many")

pytestmark = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="the benchmark needs two cores"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT))
    try:
        yield importlib.import_module("bench.cluster.__main__")
    finally:
        sys.path.remove(str(ROOT))


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_of_nodes_on_hosts_ends_with_a_table(
    cluster: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'tests'}")
    part = cluster.PARTS["hosts"]
    assert set(part.scenarios) == set(SCENARIOS)
    small = type(part.plan)(
        rounds=1,
        seconds=0.1,
        samples=2,
        machines=100,
        told=3,
        many_hosts=(3, 6),
        storms=1,
        idle=0.1,
    )
    scenario = part.scenarios[name]
    found = scenario.run(small, tmp_path)
    assert scenario.show(found)
    assert list(part.targets({name: found}))
