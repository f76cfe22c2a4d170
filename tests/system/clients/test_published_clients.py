"""Clients that other people wrote for Azure, run unmodified against the service at its address.

What each one asks and does is in clients/README.md. Everything that passes is recorded, and in
the end the judge looks at it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from forewarn.judge import judge_files
from helpers.netns import METADATA_ADDRESS, Lab, Namespace, needs_root, require
from helpers.paths import PUBLISHED_CLIENTS, ROOT
from helpers.process import Running

CLIENTS = PUBLISHED_CLIENTS
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
OCF = ROOT / ".venv-clients" / "debian" / "resource-agents" / "usr" / "lib" / "ocf"
FOREWARN = [sys.executable, "-m", "forewarn"]

FLEET = """
hosts: [a, b]
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, address: 10.77.0.10, update_domain: 0, host: a}
      - {name: web_1, address: 10.77.0.11, update_domain: 1, host: b}
      - {name: web_2, address: 10.77.0.12, update_domain: 0, host: a, spot: true}
  - name: jump
    kind: standalone
    machines: [{name: jump, address: 10.77.0.20}]
"""
GUESTS = {
    "10.77.0.10": "web000000",
    "10.77.0.11": "web000001",
    "10.77.0.12": "web000002",
    "10.77.0.20": "jump",
    "10.77.0.99": "stranger",
}


class Site:
    """The service and its guests, and an operator's hands."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.lab = lab
        (directory / "fleet.yaml").write_text(FLEET)
        self.trace = directory / "trace.jsonl"
        options = {
            "--fleet": str(directory / "fleet.yaml"),
            "--state": str(directory / "state.db"),
            "--record": str(self.trace),
            "--control": "127.0.0.1:0",
        }
        self.server = lab.host.popen([*FOREWARN, "serve", *(w for o in options.items() for w in o)])
        ready, _, urls = self.server.line().partition(" ")
        assert ready == "ready"
        self.urls: dict[str, str] = json.loads(urls)
        self.web_0, self.web_1, self.web_2, self.jump, self.stranger = lab.guests.values()

    def operator(self, *words: str) -> Any:
        argv = [*FOREWARN, *words, "--json", "--url", self.urls["control"]]
        return json.loads(self.lab.host.run(argv).stdout)

    def client(self, guest: Namespace, driver: str, *words: str) -> Running:
        require(PYTHON.exists(), "the published clients: make test installs them")
        return guest.popen([str(PYTHON), str(CLIENTS / driver), *words])

    def answer(self, guest: Namespace, driver: str, *words: str) -> dict[str, Any]:
        """What a client that runs once has to say."""
        running = self.client(guest, driver, *words)
        message = running.message(60)
        assert running.wait() == 0
        return message


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    needs_root()
    with Lab(GUESTS) as lab:
        site = Site(lab, tmp_path)
        yield site
        assert site.server.stop() == 0
    judgement = judge_files([site.trace])
    assert judgement.ok, judgement.render()


def curl(guest: Namespace, *words: str) -> CompletedProcess[str]:
    require(shutil.which("curl"), "curl: apt-get install curl")
    events = f"http://{METADATA_ADDRESS}/metadata/scheduledevents?api-version=2020-07-01"
    return guest.run(["curl", "--silent", "--show-error", "-H", "Metadata:true", *words, events])


def test_the_metadata_endpoint_is_bound_to_the_link_local_address(site: Site) -> None:
    assert site.urls["metadata"] == f"http://{METADATA_ADDRESS}:80"


def test_curl_sees_an_event_approves_it_and_sees_it_start(site: Site) -> None:
    assert json.loads(curl(site.web_0).stdout) == {"DocumentIncarnation": 1, "Events": []}
    event = site.operator("event", "schedule", "Reboot", "web_0")
    (listed,) = json.loads(curl(site.web_1).stdout)["Events"]
    assert (listed["EventId"], listed["EventStatus"]) == (event["id"], "Scheduled")
    approval = json.dumps({"StartRequests": [{"EventId": event["id"]}]})
    assert curl(site.web_1, "-d", approval).stdout == ""
    (listed,) = json.loads(curl(site.web_0).stdout)["Events"]
    assert (listed["EventStatus"], listed["NotBefore"]) == ("Started", "")
    assert site.operator("event", "show", event["id"])["approved"]["by"] == "web_1"


def test_groups_do_not_see_each_other_and_a_stranger_sees_nothing(site: Site) -> None:
    curl(site.web_0), curl(site.jump)
    site.operator("event", "schedule", "Freeze", "web_0")
    assert json.loads(curl(site.jump).stdout)["Events"] == []
    assert curl(site.stranger, "-i").stdout.splitlines()[0] == "HTTP/1.1 404 Not Found"


def test_a_dask_worker_leaves_before_its_spot_machine_does(site: Site) -> None:
    worker = site.client(site.web_2, "run_dask.py", "0.2")
    worker.expect(180, ready=True)  # it imports half of PyPI
    event = site.operator("event", "schedule", "Preempt", "web_2")
    site.operator("event", "approve", event["id"], "--yes")
    worker.expect(60, closed="spot", data_survived=True)
    assert worker.wait() == 0


def test_a_job_queue_shuts_down_for_an_eviction_and_goes_on_when_it_is_withdrawn(
    site: Site,
) -> None:
    queue = site.client(site.web_2, "run_jobq.py", "0.2")
    queue.expect(60, events=[])
    event = site.operator("event", "schedule", "Preempt", "web_2", "--notice", "10m")
    queue.expect(shutdown=True)
    site.operator("event", "cancel", event["id"])
    queue.expect(shutdown=False)


def test_a_cluster_node_stops_its_resources_approves_and_comes_back(
    site: Site, tmp_path: Path
) -> None:
    require(OCF.exists(), "Debian's resource-agents, unpacked: make test does that as root")
    agent = "azure-events-az"
    nodes = ["web000000", "web000001"]

    def monitor(guest: Namespace) -> dict[str, Any]:
        output = site.answer(guest, "run_pacemaker.py", str(OCF), agent, str(tmp_path), *nodes)
        assert output["status"] == 0, output
        return output["node"]  # type: ignore[no-any-return]

    state = f"{agent}_curNodeState"
    for guest, name in ((site.web_0, "web_0"), (site.web_1, "web_1")):
        assert monitor(guest)["azName"] == name
    event = site.operator("event", "schedule", "Reboot", "web_0")
    assert monitor(site.web_0)[state] == "STOPPING"
    assert monitor(site.web_0)[state] == "IN_EVENT"
    started = site.operator("event", "show", event["id"])
    assert (started["status"], started["approved"]["by"]) == ("Started", "web_0")
    site.operator("event", "finish", event["id"], "--reason", "the machine is back")
    assert monitor(site.web_0)[state] == "AVAILABLE"


def test_detectors_of_clouds_recognise_the_machine_and_its_name(site: Site) -> None:
    assert site.answer(site.web_0, "run_cloud_detect.py")["provider"] == "azure"
    detected = site.answer(site.web_0, "run_opentelemetry.py")
    assert detected["host.name"] == "web_0"
    assert site.answer(site.web_0, "run_elastic_apm.py")["instance"]["name"] == "web_0"
    assert site.answer(site.web_0, "run_newrelic.py")["name"] == "web_0"


def test_a_client_that_asks_for_a_wrong_path_finds_nothing_as_it_would_in_the_cloud(
    site: Site,
) -> None:
    site.operator("event", "schedule", "Preempt", "web_2")
    assert site.answer(site.web_2, "run_termination_handler.py")["preempted"] is False
