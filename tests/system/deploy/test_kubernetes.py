"""deploy/kubernetes: what `kubectl apply -k` sends is confined as it is said to be, and its
configuration is one that the agent reads. That its ClusterRole is the least one is shown with the
hook, in tests/system/hooks/test_kubernetes.py."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
import yaml

from forewarn.agent.config import read as reading
from helpers.kubernetes_cluster import DEPLOY
from helpers.netns import require
from helpers.paths import ROOT


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    require(shutil.which("kubectl"), "kubectl: apt-get install kubernetes-client")
    argv = ["kubectl", "kustomize", str(DEPLOY)]
    sent = subprocess.run(argv, check=True, capture_output=True, text=True)
    return {one["kind"]: one for one in yaml.safe_load_all(sent.stdout)}


def test_the_base_is_complete(objects: dict[str, Any]) -> None:
    kinds = {"ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "ServiceAccount"}
    assert objects.keys() == kinds
    pod = objects["DaemonSet"]["spec"]["template"]["spec"]
    names = {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
    assert names == {objects["ConfigMap"]["metadata"]["name"]}, "a new configuration is a new pod"
    account = objects["ServiceAccount"]["metadata"]
    [subject] = objects["ClusterRoleBinding"]["subjects"]
    assert pod["serviceAccountName"] == account["name"] == subject["name"]
    assert account["namespace"] == subject["namespace"] == "kube-system"


def test_the_pod_is_on_every_node_and_may_do_nothing_there(objects: dict[str, Any]) -> None:
    pod = objects["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["hostNetwork"]
    assert not pod["enableServiceLinks"], "FOREWARN_PORT is no setting"
    [container] = pod["containers"]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["privileged"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert "NODE_NAME" in [variable["name"] for variable in container["env"]]


def test_the_configuration_is_valid() -> None:
    config = reading.read(DEPLOY / "agent.toml")
    assert not config.warnings
    assert str(config.state) == "/var/lib/forewarn-agent"
    assert [hook.kind for hook in config.hooks.values()] == ["kubernetes"]


def test_the_policy_is_about_the_account_of_the_agent(objects: dict[str, Any]) -> None:
    policy, binding = yaml.safe_load_all((DEPLOY / "own-node.yaml").read_text())
    account = objects["ServiceAccount"]["metadata"]
    [condition] = policy["spec"]["matchConditions"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert condition["expression"] == f"request.userInfo.username == '{user}'"
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]


def test_the_alerts_are_those_for_every_agent(objects: dict[str, Any]) -> None:
    groups = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
    rule = yaml.safe_load((DEPLOY / "monitoring/alerts.yaml").read_text())
    assert rule["spec"]["groups"] == [one for one in groups if one["name"] == "forewarn-agent"]
    monitor = yaml.safe_load((DEPLOY / "monitoring/podmonitor.yaml").read_text())
    labels = objects["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    component = yaml.safe_load((DEPLOY / "monitoring/kustomization.yaml").read_text())
    assert all((DEPLOY / "monitoring" / name).exists() for name in component["resources"])
