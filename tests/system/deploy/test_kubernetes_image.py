"""The image of the agent, as tools/build-image makes it, run by runc with the command, rights and
mounts of the DaemonSet in deploy/kubernetes, against an API server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from forewarn.testing import Service
from helpers.free_ports import free_port
from helpers.kubernetes_cluster import DEPLOY, Cluster
from helpers.kubernetes_server import serving
from helpers.paths import ROOT
from helpers.waiting import until

MAX_SIZE = 60_000_000  # bytes of the layout
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not all(map(shutil.which, ("mmdebstrap", "umoci", "runc"))) or os.geteuid() != 0:
        pytest.skip("needs root, mmdebstrap, umoci and runc")
    directory = tmp_path_factory.mktemp("layout")
    argv = [str(ROOT / "tools/build-image"), str(Path(sys.prefix)), str(directory)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def bundle(layout: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = tmp_path_factory.mktemp("image") / "bundle"
    argv = ["umoci", "unpack", "--image", layout, str(bundle)]
    subprocess.run(argv, check=True, capture_output=True)
    return bundle


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with serving(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server.cluster


def test_the_image_is_small(layout: str) -> None:
    directory = Path(layout.rpartition(":")[0])
    assert (directory / "oci-layout").exists()
    size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    assert size <= MAX_SIZE


def test_the_only_programs_are_python_and_forewarn(bundle: Path) -> None:
    programs = [
        path.name
        for directory in ("bin", "sbin", "usr/bin", "usr/sbin")
        for path in (bundle / "rootfs" / directory).iterdir()
    ]
    assert sorted(programs) == ["forewarn", "python3.11"]


def test_the_image_drains_a_node_as_the_daemon_set_runs_it(
    bundle: Path, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.add_node("web")
    cluster.add_pod("pod", "web")
    with Service() as service, cluster.kubelet():
        machine = service.machine("web")
        runtime = configure(bundle, tmp_path, cluster, {"NODE_NAME": "web", **machine.env})
        with running(bundle, runtime) as container:
            until(lambda: "ready " in container.read(), "the agent is ready")
            checked = container.run("forewarn", "agent", "check")
            assert checked.returncode == 0, checked.stdout
            event = machine.schedule("Reboot", notice="5m", short_notice=True)
            until(lambda: event.status == "Started", "the node is drained")
            assert cluster.cordoned("web")
            assert "pod" not in cluster.pods()
            event.finish()
            until(lambda: not cluster.marks("web"), "the node takes pods again")
            assert not cluster.cordoned("web")


def configure(bundle: Path, directory: Path, cluster: Cluster, environment: dict[str, str]) -> Path:
    """Write what a kubelet would pass to runc, and return its directory."""
    documents = yaml.safe_load_all((DEPLOY / "daemonset.yaml").read_text())
    pod = next(iter(documents))["spec"]["template"]["spec"]
    [container] = pod["containers"]
    security = container["securityContext"]
    settings, state, account = (directory / name for name in ("settings", "state", "account"))
    for path in (settings, state, account):
        path.mkdir()
    text = (DEPLOY / "agent.toml").read_text()  # on a port of its own: this machine has others
    listen = f'listen = "127.0.0.1:{free_port()}"'
    (settings / "agent.toml").write_text(text.replace("[agent]\n", f"[agent]\n{listen}\n"))
    (account / "ca.crt").write_bytes(cluster.ca.read_bytes())
    (account / "token").write_text(cluster.new_token())
    host, port = cluster.url.removeprefix("https://").split(":")
    environment |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    sources = {"configuration": settings, "state": state}
    mounts = [
        (sources[mount["name"]], mount["mountPath"], mount.get("readOnly", False))
        for mount in container["volumeMounts"]
    ]
    file = bundle / "config.json"
    config: dict[str, Any] = json.loads(file.read_text())
    config["process"] |= {
        "terminal": False,
        "args": container["command"],
        "user": {"uid": security["runAsUser"], "gid": 0},
        "capabilities": {},
        "noNewPrivileges": not security["allowPrivilegeEscalation"],
    }
    config["process"]["env"] += [f"{name}={value}" for name, value in environment.items()]
    config["root"]["readonly"] = security["readOnlyRootFilesystem"]
    config["mounts"] += [
        {
            "destination": destination,
            "type": "bind",
            "source": str(source),
            "options": ["bind", "ro" if read_only else "rw"],
        }
        for source, destination, read_only in [*mounts, (account, ACCOUNT, True)]
    ]
    own = [one for one in config["linux"]["namespaces"] if one["type"] != "network"]
    config["linux"]["namespaces"] = own if pod["hostNetwork"] else config["linux"]["namespaces"]
    file.write_text(json.dumps(config))
    return directory


class Container:
    def __init__(self, name: str, directory: Path) -> None:
        self._name, self._directory = name, directory
        self.log = directory / "log"

    def read(self) -> str:
        return self.log.read_text()

    def runc(self, *arguments: str) -> list[str]:
        return ["runc", f"--root={self._directory / 'runc'}", *arguments]

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.runc("exec", self._name, *argv), capture_output=True, text=True)


@contextmanager
def running(bundle: Path, directory: Path) -> Iterator[Container]:
    container = Container(f"agent-{os.getpid()}", directory)
    argv = container.runc("run", f"--bundle={bundle}", container._name)
    with container.log.open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            yield container
        finally:
            process.terminate()  # which runc passes on
            process.wait()
