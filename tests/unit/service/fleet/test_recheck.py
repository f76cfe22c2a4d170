"""What happens to a host while a fleet is applied or a driver is asked is not overwritten, and what
was checked before is still so when it is committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from forewarn.core import Event, EventType, Refused
from forewarn.core.fleet import Health, Host
from forewarn.core.refusal import Hint
from forewarn.drivers.port import Checked, Task
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.service.fleet.diff import Difference
from forewarn.testing import Service

FLEET = """
hosts: [{name: h1, labels: {rack: r1}}, h2, h3]
groups:
  - name: web
    kind: availability-set
    machines: [{name: w0, host: h1}, {name: w1, host: h2, update_domain: 1}]
  - {name: db, kind: standalone, machines: [{name: d0, host: h1}]}
"""
RELABELLED = FLEET.replace("rack: r1", "rack: r2")
WITHOUT_H1 = FLEET.replace("{name: h1, labels: {rack: r1}}, ", "").replace("host: h1", "host: h3")


class Asked(SimulatedDriver):
    """Something happens while it is asked whether it would carry an event out."""

    def __init__(self) -> None:
        super().__init__(ImpactJournal(), lambda duration: duration)
        self.meanwhile: list[Callable[[], Awaitable[Any]]] = []

    async def check(self, task: Task) -> Checked:
        while self.meanwhile:
            done = await self.meanwhile.pop()()
            assert not isinstance(done, Refused), done
        return await super().check(task)


class Watched:
    def __init__(self, service: Service, driver: Asked, patch: pytest.MonkeyPatch) -> None:
        self.service = service
        self.node = service._session.node
        self.driver = driver
        self._patch = patch

    def apply(self, text: str, **more: Any) -> Difference | Refused:
        return self.service._session.run(self.node.fleet_apply.text(text, by="test", **more))

    def applied(self, text: str, **more: Any) -> Difference:
        done = self.apply(text, **more)
        assert isinstance(done, Difference), done
        return done

    def refused(self, work: Any) -> str:
        done = self.service._session.run(work)
        assert isinstance(done, Refused), done
        return done.message

    def done(self, work: Any) -> Any:
        done = self.service._session.run(work)
        assert not isinstance(done, Refused), done
        self.service._session.settle()
        return done

    def while_applying(self, happens: Callable[[], Any]) -> None:
        """When all has been compared and decided, but nothing is committed."""
        original = self.node.fleet_apply._decided

        def slow(*arguments: Any) -> Any:
            made = original(*arguments)
            happens()  # from the thread: the loop is free
            return made

        self._patch.setattr(self.node.fleet_apply, "_decided", slow)

    def before_the_commit(self, happens: Callable[[], Awaitable[Any]]) -> None:
        """When the next verb has looked at everything, and has not committed yet."""
        writer = self.node.writer
        original = writer.commit

        async def late(plan: Any) -> Any:
            self._patch.setattr(writer, "commit", original)
            assert not isinstance(await happens(), Refused)
            return await original(plan)

        self._patch.setattr(writer, "commit", late)

    def host(self, name: str) -> Host:
        return self.node.store.registry.hosts[name]

    def events(self) -> list[Event]:
        return self.node.platform.active()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    driver = Asked()
    with Service(FLEET, driver=driver) as service:
        service.document("w0")
        service.document("d0")
        yield Watched(service, driver, monkeypatch)


def test_a_host_that_fails_while_its_labels_are_applied_has_failed(watched: Watched) -> None:
    hosts = watched.node.hosts
    watched.while_applying(lambda: watched.done(hosts.fail("h1", "ann", note="power")))
    watched.applied(RELABELLED)
    host = watched.host("h1")
    assert (host.health, host.note, host.labels) == (Health.FAILED, "power", {"rack": "r2"})
    assert host.since is not None


def test_a_host_that_fails_while_it_is_degraded_has_failed(watched: Watched) -> None:
    hosts = watched.node.hosts
    watched.driver.meanwhile.append(lambda: hosts.fail("h1", "ann"))
    assert "already failed" in watched.refused(hosts.degrade("h1", "bob"))
    assert watched.host("h1").health is Health.FAILED
    assert {event.failure for event in watched.events()} == {True}


def test_a_host_is_not_degraded_twice_at_once(watched: Watched) -> None:
    hosts = watched.node.hosts
    watched.driver.meanwhile.append(lambda: hosts.degrade("h1", "ann", note="first"))
    assert "already degraded" in watched.refused(hosts.degrade("h1", "bob", note="second"))
    assert watched.host("h1").note == "first"
    assert len(watched.events()) == 2


def test_labels_applied_while_a_host_is_degraded_stay(watched: Watched) -> None:
    fleet_apply, hosts = watched.node.fleet_apply, watched.node.hosts
    watched.driver.meanwhile.append(lambda: fleet_apply.text(RELABELLED, by="ann"))
    watched.done(hosts.degrade("h1", "bob"))
    host = watched.host("h1")
    assert (host.health, host.labels) == (Health.DEGRADED, {"rack": "r2"})


def test_a_host_that_is_removed_meanwhile_does_not_come_back(watched: Watched) -> None:
    node = watched.node
    smaller = FLEET.replace(", h3]", "]")
    watched.before_the_commit(lambda: node.fleet_apply.text(smaller, by="ann"))
    assert "just been removed" in watched.refused(node.hosts.fail("h3", "bob"))
    assert "h3" not in node.store.registry.hosts


def test_a_host_that_fails_while_it_is_repaired_has_failed(watched: Watched) -> None:
    node = watched.node
    watched.done(node.hosts.degrade("h1", "ann"))
    watched.before_the_commit(lambda: node.hosts.fail("h1", "ann"))
    assert "just been changed" in watched.refused(node.hosts.repair("h1", "bob"))
    assert watched.host("h1").health is Health.FAILED


def test_a_machine_that_arrives_while_a_host_is_degraded_is_not_forgotten(
    watched: Watched,
) -> None:
    fleet_apply, hosts = watched.node.fleet_apply, watched.node.hosts
    more = FLEET + "  - {name: new, kind: standalone, machines: [{name: n0, host: h1}]}\n"
    watched.driver.meanwhile.append(lambda: fleet_apply.text(more, by="ann"))
    assert "just been changed" in watched.refused(hosts.degrade("h1", "bob"))
    assert watched.host("h1").healthy
    watched.done(hosts.degrade("h1", "bob"))
    assert {event.resources for event in watched.events()} == {("w0",), ("d0",), ("n0",)}


def test_a_host_is_not_removed_under_a_maintenance_that_was_just_announced(
    watched: Watched,
) -> None:
    maintain = watched.node.hosts.maintain
    watched.while_applying(lambda: watched.done(maintain("h1", EventType.REBOOT, "ann")))
    done = watched.apply(WITHOUT_H1)
    assert isinstance(done, Refused)
    assert "host 'h1' (Reboot " in done.message
    assert done.hint is Hint.FORCE
    assert "h1" in watched.node.store.registry.hosts
    assert len(watched.events()) == 2


def test_a_host_removed_by_force_ends_its_maintenance(watched: Watched) -> None:
    maintain = watched.node.hosts.maintain
    watched.while_applying(lambda: watched.done(maintain("h1", EventType.REBOOT, "ann")))
    watched.applied(WITHOUT_H1, force=True)
    assert "h1" not in watched.node.store.registry.hosts
    assert watched.events() == []


def test_a_host_is_not_removed_under_a_machine_that_has_just_come(watched: Watched) -> None:
    """A redeploy ends while the fleet is compared: w1 is on h3 then, and would stay there."""
    service = watched.service
    service.approve("w1", service.redeploy("w1"))

    def moves() -> None:
        service.clock.advance("15m")
        found = watched.node.machine_index.machine("w1")
        assert found is not None
        assert found[1].host == "h3"

    watched.while_applying(moves)
    done = watched.apply(FLEET.replace(", h3]", "]"), force=True)
    assert isinstance(done, Refused)
    assert (done.hint, done.about) == (Hint.RECORD_MOVE, "w1")
    assert "h3" in watched.node.store.registry.hosts


def test_a_host_is_not_removed_under_a_machine_that_has_just_come_and_changes_groups(
    watched: Watched,
) -> None:
    service = watched.service
    service.approve("w1", service.redeploy("w1"))
    watched.while_applying(lambda: service.clock.advance("15m"))
    text = FLEET.replace(", h3]", "]").replace(", {name: w1, host: h2, update_domain: 1}", "")
    text += "  - {name: new, kind: standalone, machines: [{name: w1, host: h2}]}\n"
    done = watched.apply(text, force=True)
    assert isinstance(done, Refused)
    assert (done.hint, done.about) == (Hint.RECORD_MOVE, "w1")


def test_machines_that_come_to_a_host_that_is_not_well_are_warned_of(watched: Watched) -> None:
    watched.done(watched.node.hosts.fail("h3", "ann"))
    watched.done(watched.node.hosts.degrade("h2", "ann"))
    text = FLEET.replace("w0, host: h1", "w0, host: h3").replace("d0, host: h1", "d0, host: h2")
    planned = watched.applied(text, plan=True)
    failed, degraded = planned.warnings
    assert "host 'h3' has failed" in failed
    assert "to w0" in failed
    assert "host 'h2' is degraded" in degraded
    assert "to d0" in degraded
    assert watched.applied(text).warnings == planned.warnings
    assert watched.applied(text.replace("w0,", "w0, spot: true,")).warnings == ()  # not anew


def test_machines_whose_host_fails_during_an_apply_are_warned_of(watched: Watched) -> None:
    watched.while_applying(lambda: watched.done(watched.node.hosts.fail("h3", "ann")))
    (output,) = watched.applied(FLEET.replace("w0, host: h1", "w0, host: h3")).warnings
    assert "host 'h3' has failed" in output
