"""kubectl 1.20 and 1.32 read what the hook has written on a Node, and install deploy/kubernetes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from helpers.hook_runs import EVENT, Hook
from helpers.kubernetes_cluster import DEPLOY, Cluster
from helpers.kubernetes_server import serving
from helpers.paths import ROOT


class Kubectl:
    def __init__(self, program: str, cluster: Cluster, directory: Path) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": cluster.direct, "certificate-authority": str(cluster.ca)},
                }
            ],
            "users": [{"name": "admin", "user": {"token": cluster.admin}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        file = directory / f"{program}.json"
        file.write_text(json.dumps(config))
        self.program = program
        self._argv = [program, f"--kubeconfig={file}", f"--cache-dir={directory / program}"]

    def __call__(self, line: str) -> str:
        argv = [*self._argv, *line.split()]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with serving(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server.cluster


@pytest.fixture(params=["kubectl-1.20", "kubectl-1.32"])
def kubectl(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Kubectl:
    cluster.clear()
    cluster.token_file.write_text(cluster.new_token())
    cluster.add_node("web-0")
    cluster.add_pod("web", "web-0")
    return Kubectl(request.param, cluster, tmp_path)


def test_kubectl_reads_the_node(kubectl: Kubectl, cluster: Cluster, tmp_path: Path) -> None:
    hook = Hook("kubernetes", cluster.options, tmp_path / "state")
    hook.here("announced", machine="web-0")
    kubectl("wait --for=condition=forewarn/MaintenancePlanned node/web-0 --timeout=60s")
    described = kubectl("describe node web-0")
    [line] = [line for line in described.splitlines() if "forewarn/MaintenancePlanned" in line]
    assert line.split()[1] == "True"
    assert f"Reboot not before {EVENT['not_before']} (Platform); the node is expected" in line
    assert f"forewarn/event-{EVENT['id']}:" in described
    assert "RebootPlanned" in described, "the event of the Node"

    with cluster.kubelet():
        hook.here("prepare", machine="web-0")
    kubectl("wait --for=condition=forewarn/Drained node/web-0 --timeout=60s")
    assert "SchedulingDisabled" in kubectl("get node web-0")
    assert "Unschedulable:      true" in kubectl("describe node web-0")

    hook.here("undo", machine="web-0")
    kubectl("wait --for=condition=forewarn/MaintenancePlanned=false node/web-0 --timeout=60s")
    assert "SchedulingDisabled" not in kubectl("get node web-0")
    assert "forewarn/event" not in kubectl("describe node web-0")


def test_an_annotation_whose_state_was_lost_is_removed_as_the_page_says(
    kubectl: Kubectl, cluster: Cluster, tmp_path: Path
) -> None:
    hook = Hook("kubernetes", cluster.options | {"drain": False}, tmp_path / "state")
    hook.here("prepare", machine="web-0")
    kubectl(f"annotate node web-0 forewarn/event-{EVENT['id']}-")
    kubectl("uncordon web-0")
    assert not cluster.marks("web-0")
    assert not cluster.cordoned("web-0")


def test_the_base_and_the_overlay_of_the_page_are_what_the_server_takes(
    kubectl: Kubectl, cluster: Cluster, tmp_path: Path
) -> None:
    directory, image = DEPLOY, "forewarn-agent"
    if kubectl.program != "kubectl-1.20":  # whose kustomize is older than such overlays
        directory, image = tmp_path, "registry.example.org/forewarn-agent:0.1.0"
        page = (ROOT / "docs/applications/kubernetes.md").read_text()
        _, _, overlay = page.partition("```yaml\n# kustomization.yaml\n")
        (tmp_path / "kustomization.yaml").write_text(overlay.partition("```")[0])
        shutil.copytree(DEPLOY, tmp_path / "forewarn" / "deploy" / "kubernetes")
    kubectl("delete clusterrole,clusterrolebinding forewarn-agent")
    kubectl("delete serviceaccount forewarn-agent --namespace kube-system")
    kubectl(f"apply --dry-run=server -k {directory}")
    kubectl(f"apply -k {directory}")
    found = yaml.safe_load(kubectl("get daemonset forewarn-agent --namespace kube-system -o yaml"))
    [container] = found["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image
    assert container["securityContext"]["readOnlyRootFilesystem"]
    can = "--as=system:serviceaccount:kube-system:forewarn-agent"
    assert kubectl(f"auth can-i patch nodes --subresource=status {can}") == "yes\n"
    kubectl(f"delete -k {directory}")
    kubectl(f"apply -f {DEPLOY / 'rbac.yaml'}")
