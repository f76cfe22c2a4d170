"""The recipe examples/hooks/kubernetes with the real kubectl. No API server can be had as a Debian
or Python package, so it speaks to a small one of our own (hook_recipes_cluster.py), over real HTTP,
that allows nothing but what the recipe's rbac.yaml allows."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from forewarn.client import host_name
from forewarn.support.guard import monotonic
from helpers.fake_kubernetes import Cluster
from helpers.hook_recipes import RECIPES, Recipe
from helpers.netns import require
from helpers.waiting import LIMIT, until

SET = "azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute"
MACHINE, NODE = "aks-pool-1234-vmss_18", "aks-pool-1234-vmss00000i"
PROVIDER = f"{SET}/virtualMachineScaleSets/aks-pool-1234-vmss/virtualMachines/18"


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    require(shutil.which("kubectl"), "kubectl: apt-get install kubernetes-client")
    parts = yaml.safe_load_all((RECIPES / "kubernetes" / "rbac.yaml").read_text())
    cluster = Cluster(next(part["rules"] for part in parts if part["kind"] == "ClusterRole"))
    yield cluster
    cluster.shutdown()
    cluster.server_close()


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.nodes.clear()
    shared.pods.clear()
    shared.evictions.clear()
    shared.lingering.clear()
    shared.budget.clear()
    shared.node("other", f"{SET}/virtualMachines/other")
    shared.node(NODE, PROVIDER)
    shared.pod("web", NODE)
    shared.pod("elsewhere", "other")
    return shared


@pytest.fixture
def hook(cluster: Cluster, tmp_path: Path) -> Recipe:
    name, url = {"name": "c"}, f"http://127.0.0.1:{cluster.server_port}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [name | {"cluster": {"server": url}}],
        "contexts": [name | {"context": {"cluster": "c", "user": "c"}}],
        "users": [name | {"user": {}}],
        "current-context": "c",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    return Recipe("kubernetes/node.py", tmp_path, MACHINE, KUBECONFIG=file)


def cordoned(cluster: Cluster, node: str = NODE) -> bool:
    return bool(cluster.nodes[node]["spec"].get("unschedulable"))


def marks(cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = cluster.nodes[NODE]["metadata"].get("annotations", {})
    return found


def test_a_node_is_cordoned_and_drained_and_then_takes_pods_again(
    cluster: Cluster, hook: Recipe
) -> None:
    cluster.pod("proxy", NODE, owner="DaemonSet")
    cluster.budget["web"] = 1
    cluster.conflicts = 1
    said = hook.ok("prepare")
    assert f"node {NODE} is cordoned" in said
    assert f"node {NODE} is drained" in said
    assert cordoned(cluster)
    assert cluster.evictions == [("web", None)], "after the disruption budget let it go"
    assert cluster.pods.keys() == {"proxy", "elsewhere"}, "the daemon set's pod is left"
    assert "is drained" in hook.ok("prepare")
    assert hook.ok("undo").strip() == f"node {NODE} takes pods again"
    assert not cordoned(cluster)
    assert not marks(cluster)
    assert hook.ok("undo").strip() == "nothing was prepared"


class Clock:
    """The time of a hook that is run in this process. It passes while kubectl drains the node, by
    the timeout of the drain: the real kubectl is ended when it has evicted all that it can."""

    def __init__(self, cluster: Cluster) -> None:
        self.now = 0.0
        self.drains: list[tuple[str, ...]] = []
        self._cluster = cluster

    def monotonic(self) -> float:
        return self.now

    def drain(self, *words: str, timeout: float) -> int:
        self.drains.append(words[4:])
        evictions = len(self._cluster.evictions)
        tries = self._cluster.budget["quorum"]
        unlimited = [word for word in words if not word.startswith("--timeout=")]
        with subprocess.Popen(["kubectl", *unlimited], stdout=subprocess.DEVNULL) as kubectl:
            until(
                lambda: (
                    len(self._cluster.evictions) > evictions
                    and self._cluster.budget["quorum"] < tries
                )
            )
            kubectl.kill()
        self.now += timeout
        return 1


def test_in_the_last_seconds_pods_are_hurried_but_a_disruption_budget_is_kept(
    cluster: Cluster, hook: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.lingering.add("web")
    cluster.pod("quorum", NODE)
    cluster.budget["quorum"] = 1_000_000
    monkeypatch.setenv("KUBECONFIG", hook.env["KUBECONFIG"])
    clock = Clock(cluster)
    node = runpy.run_path(str(RECIPES / "kubernetes" / "node.py"))
    monkeypatch.setitem(node["left"].__globals__, "time", clock)
    monkeypatch.setitem(node["left"].__globals__, "show", clock.drain)
    monkeypatch.setitem(node["left"].__globals__, "DEADLINE", 99.0)
    with pytest.raises(node["Trouble"], match="time is up"):
        node["drain"](NODE)
    assert clock.drains == [("--timeout=69s",), ("--timeout=29s", "--grace-period=15")]
    assert cluster.evictions == [("web", None), ("web", 15)]
    assert cluster.pods.keys() == {"quorum", "elsewhere"}


def test_the_time_left_of_an_event_limits_the_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREWARN_STAGE", "started")  # in which there is nothing to do
    monkeypatch.setenv("FOREWARN_STATE", str(tmp_path))
    monkeypatch.setenv("FOREWARN_SECONDS_LEFT", "100")
    before = monotonic()
    node = runpy.run_path(str(RECIPES / "kubernetes" / "node.py"), run_name="__main__")
    assert before + 99 <= node["DEADLINE"] <= monotonic() + 99


def test_of_two_events_the_last_to_be_over_opens_the_node_even_if_a_hook_was_killed(
    cluster: Cluster, hook: Recipe
) -> None:
    cluster.eviction_is_here.clear()
    cluster.evictions_go_on.clear()
    begun = hook.begin("prepare", "A")
    assert cluster.eviction_is_here.wait(LIMIT)
    hook.kill(begun)
    cluster.evictions_go_on.set()
    assert "is drained" in hook.ok("prepare", "B")
    assert marks(cluster) == {"forewarn/event-A": "open", "forewarn/event-B": "open"}
    assert "stays cordoned" in hook.ok("undo", "A")
    assert cordoned(cluster)
    assert "takes pods again" in hook.ok("undo", "B")
    assert not cordoned(cluster)


def test_the_node_is_found_by_name_or_provider_id_and_never_guessed(
    cluster: Cluster, hook: Recipe
) -> None:
    assert hook.ok("undo").strip() == "nothing was prepared"
    assert "this machine" in hook.ok("prepare", FOREWARN_MINE="false")
    cluster.node(NODE, PROVIDER.replace("/18", "/19"))
    said = hook.fails("prepare")
    assert f"'{MACHINE}'? By providerID: none." in said
    assert "NODE_NAME" in said
    assert "no such node" in hook.fails("prepare", NODE_NAME="nowhere")
    assert not cordoned(cluster)
    cluster.node("renamed", PROVIDER)
    cluster.pod("web", "renamed")
    cluster.pod("proxy", "renamed", owner="DaemonSet")
    cluster.used.clear()
    assert "renamed is drained" in hook.ok("prepare")
    assert not cluster.unused, "the role allows nothing that is not needed"
    del cluster.nodes["renamed"]
    assert "no node renamed" in hook.ok("undo")


def test_a_member_of_a_scale_set_has_the_host_name_that_the_client_says() -> None:
    node = runpy.run_path(str(RECIPES / "kubernetes" / "node.py"))
    assert node["host_name"](MACHINE) == NODE
    for name in ("web_0", "web_35", "web_36", "a_1_1295", "web_60466175"):
        assert node["host_name"](name) == host_name(name), name
    assert node["host_name"]("Jumpbox") == "jumpbox"


def test_a_refused_drain_fails_and_a_node_that_was_cordoned_before_stays_cordoned(
    cluster: Cluster, hook: Recipe
) -> None:
    cluster.node(NODE, PROVIDER, cordoned=True)
    cluster.pods["web"]["metadata"]["ownerReferences"] = []
    said = hook.fails("prepare")
    assert "default/web" in said
    assert "kubectl cannot drain" in said
    assert "is drained" in hook.ok("prepare", DRAIN_FLAGS="--force")
    assert "refused" in hook.fails("prepare", KUBECONFIG="/dev/null")
    assert "stays cordoned" in hook.ok("undo")
    assert cordoned(cluster)
