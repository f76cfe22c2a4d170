"""The API server of these tests answers as a real one of version 1.20.2 did: with the same status,
and with nothing that the real one does not have. `make test-kubernetes` asks the real one again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.kubernetes_answers import RECORDED, Script, shape
from helpers.kubernetes_server import serving

Answers = dict[str, dict[str, Any]]

# What the hook and the tests read: where the real one has it, the fake one has it too.
READ = {
    *("metadata", "name", "namespace", "uid", "resourceVersion", "annotations", "continue"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "terminationGracePeriodSeconds"),
    *("ownerReferences", "controller", "spec", "unschedulable", "taints", "providerID"),
    *("nodeName", "priority", "volumes", "emptyDir", "status", "conditions", "phase", "items"),
    *("nodeInfo", "bootID", "message", "reason", "code", "allowed", "major", "minor"),
}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def test_statuses_and_shapes_are_those_of_the_real_server(
    recorded: dict[str, Any], tmp_path: Path
) -> None:
    with serving(tmp_path) as server:
        answers = Script(server.cluster).run()
        if server.fake is None:
            version = server.cluster.request("GET", "/version")[1]["gitVersion"]
            assert version == recorded["version"]
            assert answers == recorded["answers"]
            return
    real: Answers = recorded["answers"]
    assert answers.keys() == real.keys()
    problems = {
        name: differences(answer.pop("shape"), real[name].pop("shape"))
        for name, answer in answers.items()
    }
    assert not {name: found for name, found in problems.items() if found}
    assert answers == real


def differences(fake: Any, real: Any, path: str = "") -> list[str]:
    """Where the fake one's answer has something else, or lacks what is read."""
    if isinstance(fake, list) and isinstance(real, list):
        if not fake or not real:
            return [] if not fake and not real else [f"{path}: {len(fake)} and {len(real)}"]
        return differences(fake[0], real[0], f"{path}[]")
    if not isinstance(fake, dict) or not isinstance(real, dict):
        return [] if fake == real else [f"{path}: {fake} and {real}"]
    found = [f"{path}.{key}: only here" for key in fake.keys() - real.keys()]
    found += [f"{path}.{key}: not here" for key in (real.keys() - fake.keys()) & READ]
    for key in sorted(fake.keys() & real.keys()):
        found += differences(fake[key], real[key], f"{path}.{key}")
    return found


def test_a_difference_is_found() -> None:
    real = shape({"metadata": {"uid": "1", "labels": {}}, "items": [{"a": 1}, {"b": "x"}]})
    assert not differences(shape({"metadata": {"uid": "2"}, "items": [{"a": 3, "b": ""}]}), real)
    assert differences({"metadata": {"uid": "str", "x": "int"}}, real) == [
        ".items: not here",
        ".metadata.x: only here",
    ]
    assert differences({"metadata": {}, "items": []}, real) == [
        ".items: 0 and 1",
        ".metadata.uid: not here",
    ]
