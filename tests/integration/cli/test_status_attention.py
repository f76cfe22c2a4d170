"""What needs attention, in `forewarn status` and in metrics for alerts."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.schema.core import MaintainRequest
from forewarn.control.schema.rollouts import RolloutRequest
from forewarn.core.access import Limit, Role
from forewarn.core.refusal import Refused
from forewarn.core.time import DAY, MINUTE, SECOND
from forewarn.drivers.port import Again, Driver, NotYet, Observed, Ok, Performed, Task
from forewarn.service.access.tokens import NewToken
from forewarn.service.telemetry.samples import Sample
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import StoreFailed
from forewarn.support import guard
from forewarn.support.instants import to_datetime
from forewarn.testing import SAMPLE, Service
from helpers.certificates import Authority
from helpers.polls import metrics
from helpers.token_api import Api

NOBODY = "http://127.0.0.1:9/"  # a gate that does not answer


class Slow(Driver):
    """A driver that never finishes."""

    repeatable = True

    async def check(self, task: Task) -> Ok:
        return Ok()

    async def observe(self, task: Task) -> Observed:
        return NotYet()

    async def perform(self, task: Task) -> Performed:
        return Again(at=task.now + MINUTE)


def status(service: Service, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "status", "--url", service.control_url])


def value(service: Service, name: str) -> float | None:
    """Return a metric without labels, read inside the service."""
    found = [
        number
        for sample in service._session.node._samples()
        if isinstance(sample, Sample) and sample.name == name
        for _, number in sample.samples
    ]
    return found[0] if found else None


def test_an_event_that_should_have_been_over_needs_attention() -> None:
    with Service(SAMPLE, sockets=True, driver=Slow()) as service:
        service.get("web_0")
        event = service.schedule("Reboot", "web_0", duration=60)
        service.approve("web_0", event)
        service.clock.advance("5m")
        assert metrics(service.control_url)["forewarn_started_overdue_seconds"] == 240
        assert event.id not in status(service).stdout
        service.clock.advance("7m")
        result = status(service)
        assert result.exit_code == 1
        assert "2027-01-15 08:01:00Z" in result.stdout
        assert f"'forewarn event explain {event.id}'" in result.stdout
        service._session.run(service._session.node.platform.finish(event.id, "test", "done"))
        assert metrics(service.control_url)["forewarn_started_overdue_seconds"] == 0


def test_an_event_of_unknown_duration_is_given_half_an_hour() -> None:
    with Service(SAMPLE, driver=Slow()) as service:
        service.get("web_0")
        service.approve("web_0", service.schedule("Reboot", "web_0"))
        service.clock.advance("30m")
        assert value(service, "forewarn_started_overdue_seconds") == 0
        service.clock.advance("10s")
        assert value(service, "forewarn_started_overdue_seconds") == 10


def test_a_tenant_sees_only_problems_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(SAMPLE, sockets=True, driver=Slow()) as service:
        node, client = service._session.node, ControlClient(service.control_url)
        for machine in ("web_0", "sql-0"):
            service.get(machine)
            event = service.schedule("Reboot", machine, duration=60)
            service.approve(machine, event)
        service.clock.advance("1h")
        client.fail_host("host-a", {"note": "no power"})
        everything = {problem.kind for problem in client.status().problems}
        assert everything >= {"overdue", "host"}
        limit = Limit(groups=("web",))
        wanted = NewToken(name="tom", role=Role.TENANT, limit=limit, expires_in=40 * DAY)
        admin = NewToken(name="alice", role=Role.ADMIN, expires_in=5 * DAY)
        _, tom = (service._session.run(node.tokens.create(new, "test")) for new in (admin, wanted))
        assert not isinstance(tom, Refused)
        monkeypatch.setenv("FOREWARN_TOKEN", tom.secret.text)
        found = Api(service.control_url, tom.secret.text).get("/v1/status").json()
        assert {problem["kind"] for problem in found["problems"]} == {"overdue"}
        assert all("web" in problem["message"] for problem in found["problems"])
        assert (found["problems_total"], found["hosts"]) == (len(found["problems"]), 0)
        assert status(service).exit_code == 1


def test_a_rollout_that_has_paused_itself_needs_attention() -> None:
    with Service(SAMPLE, sockets=True) as service:
        client = ControlClient(service.control_url)
        service.get("web_0")
        request = RolloutRequest(
            type="Freeze", groups=["web"], gate_http=NOBODY, gate_timeout=60.0, notice=900.0
        )
        rollout = client.start_rollout(request)
        service.clock.advance("1h")
        assert metrics(service.control_url)["forewarn_rollouts_self_paused"] == 1
        result = status(service)
        assert result.exit_code == 1
        assert re.search(f"rollout {rollout.id[:8]} .* gate", result.stdout)
        client.abort_rollout(rollout.id, {})
        assert metrics(service.control_url)["forewarn_rollouts_self_paused"] == 0
        other = client.start_rollout(RolloutRequest(type="Freeze", groups=["sql"]))
        client.pause_rollout(other.id, {})
        assert metrics(service.control_url)["forewarn_rollouts_self_paused"] == 0
        assert "paused itself" not in status(service).stdout


@pytest.mark.parametrize(("days", "soon"), [(5, True), (60, False)])
def test_a_certificate_that_expires_soon_needs_attention(
    tmp_path: Path, days: int, soon: bool
) -> None:
    authority = Authority(tmp_path)
    until = to_datetime(guard.wall_us()).replace(microsecond=0) + timedelta(days=days)
    pair = authority.issue("localhost", "127.0.0.1", until=until)
    with Service(SAMPLE, sockets=True, tls=pair) as service:
        found = value(service, "forewarn_certificate_expiry_timestamp_seconds")
        assert found == until.timestamp()
        result = status(service, "--ca", str(authority.path))
        assert (re.search("certificate .* expires", result.stdout) is not None) is soon
        assert result.exit_code == int(soon), result.output


def test_a_token_that_expires_soon_needs_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Service(SAMPLE, sockets=True) as service:
        node = service._session.node
        assert value(service, "forewarn_token_expiry_timestamp_seconds") is None
        admin = service._session.run(
            node.tokens.create(NewToken(name="alice", role=Role.ADMIN, expires_in=40 * DAY), "test")
        )
        short = NewToken(name="ci", role=Role.VIEWER, expires_in=3 * DAY)
        assert not isinstance(service._session.run(node.tokens.create(short, "test")), Refused)
        assert not isinstance(admin, Refused)
        monkeypatch.setenv("FOREWARN_TOKEN", admin.secret.text)
        expires = (admin.token.expires_at or 0) / SECOND
        assert value(service, "forewarn_token_expiry_timestamp_seconds") == expires
        assert "token expires" not in status(service).stdout
        service.clock.advance("30d")
        result = status(service)
        assert re.search("token expires .* 2027-02-24 08:00:00Z", result.stdout)
        assert result.exit_code == 1


class FullDisk(MemoryStore):
    full = False

    async def _persist(self, *given: Any) -> None:
        if self.full:
            raise StoreFailed("no space left")
        await super()._persist(*given)


def test_no_command_is_advised_while_the_disk_is_full() -> None:
    store = FullDisk(Disk())
    with Service(SAMPLE, sockets=True, store=store) as service:
        client = ControlClient(service.control_url)
        service.get("web_0")
        event = service.schedule("Reboot", "web_0")
        rollout = client.start_rollout(RolloutRequest(type="Freeze", groups=["sql"]))
        client.pause_rollout(rollout.id, {})
        client.maintain_host("host-b", MaintainRequest(mode="Freeze"))
        store.full = True
        with pytest.raises(ControlError, match="no space left"):
            client.approve(event.id)

        def explained(*words: str) -> str:
            result = CliRunner().invoke(app, [*words, "--url", service.control_url])
            assert result.exit_code == 0, result.output
            assert "run: forewarn" not in result.stdout
            return result.stdout

        text = explained("event", "explain", event.id)
        assert text.splitlines()[1].startswith("- state: ")
        assert "by approving" not in text
        assert "- state: " in explained("host", "explain", "host-b")
        assert "cannot be written" in explained("rollout", "explain", rollout.id)
        store.full = False
        client.approve(event.id)


def test_status_shows_the_metadata_endpoint_or_the_number_of_hosts_with_nodes() -> None:
    with Service(SAMPLE, sockets=True) as service:
        node = service._session.node
        assert f"metadata endpoint: {node.metadata_url}" in status(service).output
        service._session.run(node.hosts.node_joined("host-a"))
        assert "metadata endpoint: on 1 host;" in status(service).output.replace("  ", " ")
