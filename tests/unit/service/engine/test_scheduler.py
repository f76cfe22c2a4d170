"""Which deadlines a commit makes the scheduler read again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from forewarn.core import EventType, Group, Refused
from forewarn.service.engine.scheduler import Scheduler
from forewarn.testing import Service

FLEET = """
hosts: [h1, h2]
groups:
  - {name: web, kind: standalone, machines: [{name: web-0, host: h1}]}
  - {name: db, kind: standalone, machines: [{name: db-0, host: h1}]}
  - {name: mail, kind: standalone, machines: [{name: mail-0, host: h2}]}
  - {name: cache, kind: standalone, machines: [{name: cache-0, host: h2}]}
"""


def test_a_machine_that_was_not_warned_affects_only_groups_on_its_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: set[str] = set()
    original = Scheduler._read

    def recording(self: Scheduler, groups: Iterable[Group]) -> None:
        listed = list(groups)
        read.update(group.name for group in listed)
        original(self, listed)

    with Service(FLEET) as service:
        node = service._session.node

        def run(work: Any) -> Any:
            result = service._session.run(work)
            service._session.settle()
            assert not isinstance(result, Refused), result
            return result

        planned = run(node.hosts.maintain("h1", EventType.REBOOT, "ops")).events
        monkeypatch.setattr(Scheduler, "_read", recording)
        run(node.platform.record_move("mail-0", "h1", "ops"))
        assert read == {"web", "db", "mail"}
        service.clock.advance("1h")
        assert {e.started_at for e in run(node.platform.events([e.id for e in planned]))} == {None}
        read.clear()
        run(node.platform.record_move("mail-0", "h2", "ops"))
        assert read == {"web", "db", "mail"}
        assert all(e.started_at for e in run(node.platform.events([e.id for e in planned])))


def test_the_deadlines_of_a_group_are_read_once_for_all_hosts_that_join_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    original = Scheduler._read

    def recording(self: Scheduler, groups: Iterable[Group]) -> None:
        listed = list(groups)
        read.extend(group.name for group in listed)
        original(self, listed)

    hosts = [f"h{n}" for n in range(20)]
    machines = ", ".join(f"{{name: web_{n}, host: {host}}}" for n, host in enumerate(hosts))
    fleet = f"""
hosts: [{", ".join(hosts)}]
groups:
  - {{name: web, kind: scale-set, machines: [{machines}]}}
"""
    with Service(fleet) as service:
        node = service._session.node
        monkeypatch.setattr(Scheduler, "_read", recording)

        async def change() -> None:
            for host in hosts:
                node.unreachable_hosts._changed(host)

        service._session.run(change())
        service._session.settle()
        assert read == ["web"]
