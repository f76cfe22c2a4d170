"""What /metrics says is so: of the fleet, of events, of the service's own work."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.schema.rollouts import RolloutRequest
from forewarn.core.changes import MachinePut
from forewarn.core.fleet import Machine
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import Batch, Entry, StoreFailed
from forewarn.testing import SAMPLE, Service
from helpers.paths import ROOT
from helpers.polls import metrics
from helpers.times import START
from helpers.waiting import LIMIT

DOCS = ROOT / "docs"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(SAMPLE, sockets=True, front=True, state=tmp_path / "state.db") as service:
        yield service


def now(service: Service) -> dict[str, float]:
    return metrics(service.control_url)


def test_the_fleet_is_counted_along_with_every_change(service: Service) -> None:
    client = ControlClient(service.control_url)
    before = now(service)
    assert before['forewarn_machines{state="present"}'] == len(client.machines())
    assert before["forewarn_callers"] == len(client.machines())
    assert before['forewarn_groups{enabled="false"}'] == len(client.groups())
    assert before['forewarn_hosts{health="healthy"}'] == len(client.hosts())
    service.get("web_0")
    client.evict_machine("web_2")
    service.clock.advance("5m")
    client.fail_host("host-c", {})
    after = now(service)
    assert after['forewarn_groups{enabled="true"}'] == 1
    assert after['forewarn_machines{state="gone"}'] == 1
    assert after["forewarn_callers"] == before["forewarn_callers"] - 1
    assert after['forewarn_hosts{health="failed"}'] == 1
    assert after['forewarn_hosts{health="healthy"}'] == len(client.hosts()) - 1


def test_metrics_follow_an_event_to_its_end(service: Service) -> None:
    service.get("web_0")
    service.get("sql-0")
    event = service.schedule("Reboot", "web_0", notice="20m")
    service.schedule("Reboot", "sql-0", notice="1h")
    service.clock.advance("5m")
    found = now(service)
    assert found['forewarn_events{state="scheduled",type="Reboot"}'] == 2
    assert found['forewarn_events_raised_total{source="Platform",type="Reboot"}'] == 2
    assert found['forewarn_notice_left_seconds{type="Reboot"}'] == 15 * 60
    assert 'forewarn_notice_left_seconds{type="Freeze"}' not in found
    assert found['forewarn_notice_seconds_bucket{le="900.0",type="Reboot"}'] == 0
    assert found['forewarn_notice_seconds_bucket{le="3600.0",type="Reboot"}'] == 2
    assert found['forewarn_notice_seconds_sum{type="Reboot"}'] == 80 * 60
    service.approve("web_1", event)
    found = now(service)
    assert found['forewarn_events{state="started",type="Reboot"}'] == 1
    assert found['forewarn_approvals_total{by="guest"}'] == 1
    assert found['forewarn_notice_left_seconds{type="Reboot"}'] == 55 * 60
    service.clock.advance("20m")
    found = now(service)
    assert found['forewarn_events_ended_total{ending="finished",type="Reboot"}'] == 1
    assert found['forewarn_events{state="started",type="Reboot"}'] == 0
    assert found['forewarn_driver_attempts_total{result="done"}'] == 1
    assert found['forewarn_driver_attempts_total{result="again"}'] >= 1
    assert found["forewarn_driver_seconds_count"] >= 2


def test_approvals_are_counted_by_who_gave_them(service: Service) -> None:
    client = ControlClient(service.control_url)
    service.get("web_0")
    client.approve(service.schedule("Reboot", "web_0").id)
    service.restart("sql-0")  # whose group does not listen
    found = now(service)
    assert found['forewarn_approvals_total{by="operator"}'] == 1
    assert found['forewarn_approvals_total{by="nobody"}'] == 1
    assert found['forewarn_approvals_total{by="guest"}'] == 0


def test_polls_and_refusals_are_counted_by_status(service: Service) -> None:
    service.get("web_0")
    assert service.get("web_0", headers={"Metadata": "no"}).status == 400
    found = now(service)
    assert found['forewarn_polls_total{api_version="2020-07-01",status="200"}'] == 1
    assert found['forewarn_refusals_total{status="400"}'] == 1
    assert found['forewarn_refusals_total{status="500"}'] == 0


def test_commits_and_control_calls_are_measured(service: Service) -> None:
    client = ControlClient(service.control_url)
    before = now(service)
    service.schedule("Reboot", "web_0")
    client.status()
    with pytest.raises(ControlError):
        client.evict_machine("nobody")
    after = now(service)
    assert after["forewarn_commits_total"] > before["forewarn_commits_total"]
    assert after["forewarn_commit"] == service._session.node.store.seq
    assert after["forewarn_commit_seconds_count"] > before["forewarn_commit_seconds_count"]
    assert after["forewarn_commit_batch_sum"] >= after["forewarn_commits_total"]
    assert after['forewarn_control_requests_total{method="POST",status="4xx"}'] == 1
    assert after['forewarn_control_requests_total{method="GET",status="2xx"}'] >= 2
    assert after["forewarn_ready"] == after["forewarn_healthy"] == 1


class Failing(MemoryStore):
    fails = False

    async def _persist(self, *given: Any) -> None:
        if self.fails:
            raise StoreFailed("no space left")
        await super()._persist(*given)


def test_a_failure_of_the_store_is_counted() -> None:
    store = Failing(Disk())
    with Service(SAMPLE, sockets=True, front=True, store=store) as service:
        store.fails = True
        with pytest.raises(ControlError, match="no space left"):
            ControlClient(service.control_url).evict_machine("web_2")
        found = now(service)
        assert found["forewarn_commit_failures_total"] == 1
        assert found["forewarn_store_failing"] == 1
        assert found["forewarn_ready"] == 0
        assert found["forewarn_healthy"] == 1
        store.fails = False
        service.schedule("Reboot", "web_0")
        assert now(service)["forewarn_store_failing"] == 0


def test_lost_time_and_rollouts_are_counted(service: Service) -> None:
    service.clock.interrupt("90s", "the process was stalled")
    service.clock.interrupt("10s")
    client = ControlClient(service.control_url)
    started = client.start_rollout(RolloutRequest(type="Reboot", groups=["web"]))
    client.pause_rollout(started.id, {})
    found = now(service)
    assert found['forewarn_interruptions_total{reason="stalled"}'] == 1
    assert found['forewarn_interruptions_total{reason="away"}'] == 1
    assert found["forewarn_lost_seconds"] == 100
    assert found['forewarn_rollouts{state="paused"}'] == 1
    assert found["forewarn_overdue_seconds"] == 0


def test_numbers_go_on_after_a_restart_where_they_are_about_the_state(tmp_path: Path) -> None:
    with Service(SAMPLE, sockets=True, front=True, state=tmp_path / "s.db") as service:
        service.get("web_0")
        service.schedule("Reboot", "web_0", notice="1h")
        before = now(service)
    with Service(SAMPLE, sockets=True, front=True, state=tmp_path / "s.db") as service:
        after = now(service)
        for name in (
            'forewarn_events{state="scheduled",type="Reboot"}',
            'forewarn_notice_left_seconds{type="Reboot"}',
            'forewarn_groups{enabled="true"}',
            'forewarn_machines{state="present"}',
        ):
            assert after[name] == before[name], name


def test_no_name_and_no_id_is_a_label(service: Service) -> None:
    client = ControlClient(service.control_url)
    service.get("web_0")
    event = service.schedule("Reboot", "web_0")
    client.event(event.id)
    text = scraped(service)
    for name in (event.id, "web_0", "sql", "host-a", "jumpbox"):
        assert name not in text


def scraped(service: Service, **headers: str) -> str:
    request = urllib.request.Request(f"{service.control_url}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        text: str = answer.read().decode()
        return text


def test_a_scrape_is_answered_in_openmetrics_on_request(service: Service) -> None:
    text = scraped(service, Accept="application/openmetrics-text;version=1.0.0")
    assert text.endswith("# EOF\n")
    assert "forewarn_commits_total" in text


def test_a_scrape_does_not_walk_over_the_fleet() -> None:
    """However many machines there are: what it looks at is counted already."""
    machines = tuple(MachinePut(Machine(name=f"m{n}")) for n in range(50))
    with Service(SAMPLE, sockets=True, front=True) as service:
        batch = Batch(START, entries=(Entry("large", machines),))
        service._session.run(service._session.node.store.transact(lambda _: batch))
        assert now(service)['forewarn_machines{state="present"}'] > 50
        looked: list[str] = []
        group = service._session.node.store.groups["large"]
        fleet_counts = service._session.node.metrics.fleet_counts
        fleet_counts._groups["large"] = (
            Watched(group.machines, looked),
            *fleet_counts._groups["large"][1:],
        )
        now(service)
        assert looked == []


class Watched(tuple[Machine, ...]):
    """Says who goes through it."""

    looked: list[str]

    def __new__(cls, machines: tuple[Machine, ...], looked: list[str]) -> Watched:
        made = super().__new__(cls, machines)
        made.looked = looked
        return made

    def __iter__(self) -> Iterator[Machine]:
        self.looked.append("walked")
        return super().__iter__()


def test_faults_are_counted_by_state(service: Service) -> None:
    service.faults.add("gone", machine="web_0", times=2)
    service.faults.add("error", machine="sql-0", starts_in="1h")
    service.get("web_0")
    found = now(service)
    assert (
        found['forewarn_faults{state="active"}'] == found['forewarn_faults{state="waiting"}'] == 1
    )
    assert found["forewarn_faults_consumed_total"] == 1
    service.get("web_0")
    service.faults.clear()
    assert now(service)['forewarn_faults{state="active"}'] == 0
    assert now(service)["forewarn_faults_consumed_total"] == 2, "which never goes back"


def test_every_metric_is_documented_and_every_documented_one_exists(service: Service) -> None:
    text = (DOCS / "operate" / "monitoring.md").read_text()
    documented = set(
        re.findall(r"^\| `((?:forewarn|process)_[a-z_]+)(?:\{[a-z_,]*\})?` \|", text, re.M)
    )
    exposed = set(re.findall(r"^# TYPE (\S+) ", scraped(service), re.M))
    of_nodes = {"forewarn_disconnected_seconds", "forewarn_control_silence_seconds"}
    not_here = of_nodes | {"forewarn_journal_bytes", "forewarn_journal_failing"}
    # There are no tables [[notify]].
    not_here |= {name for name in documented if name.startswith("forewarn_notify_")}
    assert documented - not_here == exposed - not_here


def test_the_documented_labels_are_those_of_the_metrics(service: Service) -> None:
    text = (DOCS / "operate" / "monitoring.md").read_text()
    service.get("web_0")
    service.schedule("Reboot", "web_0")
    service.schedule("Freeze", "web_1")
    scraped(service)  # which is a call of its own
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(
        r"^(\w+?)(?:_bucket|_sum|_count)?\{(.*)\} ", scraped(service), re.M
    ):
        names = set(re.findall(r'(\w+)="', labels)) - {"le"}
        found.setdefault(name, set()).update(names)
    response = {
        name: set(labels.split(",")) - {""}
        for name, labels in re.findall(r"^\| `(forewarn_\w+)\{([a-z_,]*)\}` \|", text, re.M)
    }
    # There are no tables [[notify]], and no driver reports machines.
    not_here = ("forewarn_notify_", "forewarn_machines_differing")
    assert {n: names for n, names in found.items() if n.startswith("forewarn_") and names} == {
        name: labels for name, labels in response.items() if not name.startswith(not_here)
    }
