"""Which machines poll and answer: it is counted right, and known again after a restart."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from forewarn.service.indexes import coverage, polls
from forewarn.service.indexes.coverage import CoverageCounts
from forewarn.service.indexes.polls import MachinePolls
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import PollSightings
from forewarn.testing import Service

FLEET = """
groups:
  - name: web
    kind: scale-set
    machines: [{name: web_0}, {name: web_1}, {name: web_2, spot: true}]
  - name: db
    kind: availability-set
    machines: [{name: db-0, update_domain: 0}, {name: db-1, update_domain: 1}]
"""


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def service(disk: Disk) -> Iterator[Service]:
    with Service(FLEET, store=MemoryStore(disk)) as made:
        yield made


def counted(service: Service) -> CoverageCounts:
    """Return the counts, which are the same whether all machines are walked through or not."""
    node = service._session.node
    walked = node.platform.coverage(m for g in node.machine_index.groups() for m in g.machines)
    assert node.metrics.fleet_counts.coverage(node.writer.now().at) == walked
    return walked


def polls_of(service: Service, machine: str) -> MachinePolls:
    found = service._session.node.poll_index.polls(machine)
    assert found is not None
    return found


def has(service: Service, name: str, machine: str) -> bool:
    node = service._session.node
    return coverage.has(name, node.poll_index.polls(machine), node.writer.now().at)


def save(service: Service) -> None:
    node = service._session.node
    service._session.run(node.poll_index.save(node.writer.now()))


def test_machines_listen_fall_silent_and_have_never_polled(service: Service) -> None:
    assert counted(service) == CoverageCounts(never_polled=5)
    service.get("web_0")
    service.get("db-0")
    assert counted(service) == CoverageCounts(listening=2, never_polled=3)
    service.clock.advance("1h")
    assert counted(service) == CoverageCounts(listening=2, never_polled=3)
    service.clock.advance("1s")
    service.get("db-0")
    assert counted(service) == CoverageCounts(listening=1, silent=1, never_polled=3)
    assert has(service, "silent", "web_0")
    assert has(service, "listening", "db-0")
    assert has(service, "never-polled", "db-1")


def test_a_machine_that_is_gone_is_not_counted(service: Service) -> None:
    service.get("web_2")
    service["web_2"].evict().until_over()
    assert counted(service) == CoverageCounts(never_polled=4)


def test_a_machine_that_saw_its_event_and_let_it_start_never_approves(service: Service) -> None:
    service.get("web_0")
    event = service.schedule("Reboot", "web_0")
    service.get("web_0")
    service.get("web_1")  # is shown it as well, but it is not its own
    event.until_started()
    assert counted(service).never_approves == 1
    assert has(service, "never-approves", "web_0")
    assert polls_of(service, "web_1").ignored == 0
    event.until_over()
    second = service.schedule("Reboot", "web_0")
    service.get("web_0")
    service.approve("web_0", second)
    assert counted(service).never_approves == 0
    assert polls_of(service, "web_0").ignored == 1


def test_an_event_that_another_machine_approves_is_not_ignored(service: Service) -> None:
    service.get("web_0")
    event = service.schedule("Reboot", "web_0")
    service.get("web_0")
    service.approve("web_1", event)
    assert counted(service).never_approves == 0
    assert polls_of(service, "web_0").ignored == 0


def test_an_event_that_was_not_shown_or_could_not_be_approved_is_not_ignored(
    service: Service,
) -> None:
    service.get("web_1")
    event = service.schedule("Reboot", "web_0")
    event.until_over()
    service.get("web_0")
    service["web_0"].fail()
    service.get("web_0")
    assert counted(service).never_approves == 0


def test_a_machine_that_reports_that_it_is_ready_has_answered(service: Service) -> None:
    service.get("web_0")
    event = service.schedule("Reboot", "web_0")
    service.get("web_0")
    node = service._session.node
    service._session.run(node.guests.prepare("web_0", "web", event.id, True, ""))
    event.until_started()
    assert (polls_of(service, "web_0").ignored, counted(service).never_approves) == (1, 0)


def test_nothing_is_lost_when_the_service_is_stopped(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polls, "MACHINES_AT_ONCE", 1)
    with Service(FLEET, store=MemoryStore(disk)) as service:
        for name in ("web_0", "web_1", "db-0"):
            service.get(name, "2019-08-01")
        event = service.schedule("Reboot", "web_0")
        service.get("web_0", "2019-08-01")
        event.until_started()
        last = polls_of(service, "web_0").last
        before = counted(service)
    with Service(store=MemoryStore(disk)) as again:
        found = polls_of(again, "web_0")
        assert (found.last, found.version, found.count) == (last, "2019-08-01", 2)
        assert (found.ignored, found.answered) == (1, None)
        assert (
            counted(again)
            == before
            == CoverageCounts(listening=3, never_polled=2, never_approves=1)
        )
        again.get("web_0")
        assert polls_of(again, "web_0").count == 3


def test_what_is_lost_in_a_crash_is_bounded(
    disk: Disk, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each machine has its turn; what was saved in its turn is there after a crash."""
    monkeypatch.setattr(polls, "MACHINES_AT_ONCE", 2)
    for name in ("web_0", "web_1", "web_2", "db-0", "db-1"):
        service.get(name)
    saved = []
    for _ in range(3):
        save(service)
        with Service(store=MemoryStore(copy.deepcopy(disk))) as crashed:
            saved.append(counted(crashed).listening)
    assert saved[0] >= 2  # more if the service itself has saved meanwhile
    assert saved[1] >= 4
    assert saved[2] == 5


def test_what_could_not_be_saved_is_saved_later(disk: Disk) -> None:
    class Failing(MemoryStore):
        broken = False

        async def save(self, sightings: PollSightings) -> None:
            if self.broken:
                raise OSError("no space left on device")
            await super().save(sightings)

    store = Failing(disk)
    with Service(FLEET, store=store) as service:
        service.get("web_0")
        store.broken = True
        with pytest.raises(OSError, match="no space"):
            save(service)
        store.broken = False
        save(service)
        assert disk.sightings.machines["web_0"].polls == 1


def test_a_save_writes_only_machines_that_have_polled_since(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: Counter[str] = Counter()
    store = service._session.node.store
    original = store.save

    async def save_and_note(sightings: PollSightings) -> None:
        written.update(list(sightings.machines))
        await original(sightings)

    monkeypatch.setattr(store, "save", save_and_note)
    service.get("web_0")
    service.get("db-0")
    save(service)
    service.get("db-0")
    service.clock.advance("1s")
    service.get("db-0")
    save(service)
    save(service)
    assert written == {"db-0": 2, "web_0": 1}


def test_a_machine_that_was_removed_is_forgotten_by_the_store(disk: Disk) -> None:
    with Service(FLEET, store=MemoryStore(disk)) as service:
        service.get("web_2")
        save(service)
        assert "web_2" in disk.sightings.machines
        service["web_2"].evict().until_over()
        assert "web_2" not in disk.sightings.machines
    assert not disk.sightings.machines


def test_the_counts_are_those_of_the_api() -> None:
    from forewarn.control.schema import core as s

    assert [field.name for field in msgspec.structs.fields(CoverageCounts)] == [
        field.name for field in msgspec.structs.fields(s.Coverage)
    ]
