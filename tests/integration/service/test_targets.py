"""Where machines go that move at the same time: every host counts what is on its way to it."""

from __future__ import annotations

from collections import Counter

from forewarn.core import Event
from forewarn.drivers.port import Failed, Performed, Task
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.service.indexes.placement import targets_of
from forewarn.testing import Service

HERD = f"""
hosts: [h1, h2, h3, h4, h5, h6]
groups:
{
    chr(10).join(
        f"  - {{name: s{n}, kind: standalone, machines: [{{name: s{n}, host: h1}}]}}"
        for n in range(20)
    )
}
  - name: big
    kind: availability-set
    machines: [{", ".join(f"{{name: big-{n}, update_domain: 0, host: h1}}" for n in range(12))}]
"""
TWO_DOMAINS = """
hosts: [h1, h2, h3]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web-0, update_domain: 0, host: h1}
      - {name: web-1, update_domain: 0, host: h1}
      - {name: web-2, update_domain: 1, host: h1}
      - {name: web-3, update_domain: 1, host: h2}
"""


def on_hosts(service: Service) -> Counter[str]:
    groups = service._session.node.store.groups.values()
    return Counter(m.host for group in groups for m in group.machines if m.alive)


def active(service: Service) -> list[Event]:
    return list(service._session.call(service._session.node.platform.active))


def coming(service: Service) -> Counter[str]:
    return Counter(host for event in active(service) for host in targets_of(event).values())


def drain(service: Service, host: str) -> None:
    service.host(host).maintain("live-migration", evacuate=True)


def test_machines_that_leave_a_host_together_are_spread_over_the_others() -> None:
    with Service(HERD) as service:
        drain(service, "h1")
        service.clock.advance("16m")
        assert coming(service) == {"h2": 7, "h3": 7, "h4": 6, "h5": 6, "h6": 6}
        assert on_hosts(service) == {"h1": 32}
        service.clock.advance("1h")
        assert on_hosts(service) == {"h2": 7, "h3": 7, "h4": 6, "h5": 6, "h6": 6}
        assert coming(service) == {}
        service.host("h2").fail()
        service.clock.advance("1h")
        assert sorted(on_hosts(service).values()) == [8, 8, 8, 8]


def test_machines_do_not_follow_each_other_from_one_failed_host_to_the_next() -> None:
    with Service(HERD) as service:
        service.host("h1").fail()
        assert sorted(coming(service).values()) == [6, 6, 6, 7, 7]
        service.host("h2").fail()  # before any machine has arrived there
        service.clock.advance("1h")
        assert on_hosts(service)["h2"] == 0
        assert sorted(on_hosts(service).values()) == [8, 8, 8, 8]


def test_update_domains_that_move_together_are_kept_apart() -> None:
    with Service(TWO_DOMAINS) as service:
        service.host("h1").fail()
        service.clock.advance("1h")
        machines = service._session.node.store.groups["web"].machines
        where = {machine.name: machine.host for machine in machines}
        assert where == {"web-0": "h3", "web-1": "h3", "web-2": "h2", "web-3": "h2"}


class Refusing(SimulatedDriver):
    """Refuses some hosts as targets."""

    def __init__(self, *hosts: str) -> None:
        super().__init__(ImpactJournal(), lambda duration: duration)
        self.refused = hosts
        self.given: list[str] = []

    async def perform(self, task: Task) -> Performed:
        hosts = [machine.target for machine in task.machines]
        self.given += hosts
        if refused := tuple(host for host in hosts if host in self.refused):
            return Failed("its CPUs are too old", unsuitable=refused)
        return await super().perform(task)


def test_another_target_is_chosen_instead_of_one_that_the_driver_refuses() -> None:
    driver = Refusing("h2", "h3")
    with Service(HERD, driver=driver) as service:
        event = service.redeploy("s0")
        service.clock.advance("6s")
        assert "moves no machine to h2, h3" in event.explain()
        service.clock.advance("2h")
        assert dict.fromkeys(driver.given) == dict.fromkeys(["h2", "h3", "h4"])
        assert on_hosts(service)["h4"] == 1


def test_a_machine_stays_until_there_is_a_host_that_can_take_it() -> None:
    with Service(TWO_DOMAINS, driver=Refusing("h2", "h3")) as service:
        drain(service, "h1")
        service.clock.advance("1h")
        notes = {event.attempt.note for event in active(service) if event.attempt is not None}
        assert notes == {"no other host can take web-0 now", "no other host can take web-1 now"}
        assert coming(service) == {}
        assert on_hosts(service) == {"h1": 3, "h2": 1}
