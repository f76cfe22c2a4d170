"""The fleet that the pictures of the portal show: a Friday morning on a virtual clock. Names, ids
and times are fixed, so that the pictures are the same each time."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

from forewarn.core.access import Role
from forewarn.testing import Event, Service
from helpers.token_api import Api, api_with_token

RACKS = 3  # update domain 0 of every group is in the first rack, and so on


def _machines(group: str, count: int, hosts: str, *, separator: str = "_", **more: Any) -> str:
    lines = []
    for number in range(count):
        domain = number % RACKS
        host = f"rack{domain + 1}-{hosts[number // RACKS % len(hosts)]}"
        details = "".join(f", {key}: {value}" for key, value in more.items())
        lines.append(
            f"      - {{name: {group}{separator}{number}, update_domain: {domain},"
            f" fault_domain: {domain}, host: {host}{details}}}"
        )
    return "\n".join(lines)


FLEET = f"""
hosts:
  - {{name: rack1-a, labels: {{rack: "1", model: r650}}}}
  - {{name: rack1-b, labels: {{rack: "1", model: r650}}}}
  - {{name: rack2-a, labels: {{rack: "2", model: r650}}}}
  - {{name: rack2-b, labels: {{rack: "2", model: r760}}}}
  - {{name: rack3-a, labels: {{rack: "3", model: r760}}}}
  - {{name: rack3-b, labels: {{rack: "3", model: r760}}}}
maintenance:
  - name: weekends
    select: tier=data
    windows: ["sat,sun 22:00-04:00 Europe/Berlin"]
  - name: winter-sale
    select: team=shop
    blackouts: ["2027-01-22 to 2027-01-25 Europe/Berlin"]
groups:
  - name: web
    kind: scale-set
    labels: {{tier: web, team: shop}}
    policy: {{may_postpone: "2h, twice", terminate_notice: 10m}}
    machines:
{_machines("web", 12, "ab")}
  - name: api
    kind: scale-set
    labels: {{tier: web, team: platform}}
    machines:
{_machines("api", 6, "ab")}
  - name: orders-db
    kind: availability-set
    labels: {{tier: data, team: shop}}
    machines:
{_machines("orders-db", 3, "a", separator="-")}
  - name: search
    kind: availability-set
    labels: {{tier: data, team: platform}}
    machines:
{_machines("search", 3, "a", separator="-")}
  - name: render
    kind: scale-set
    labels: {{tier: batch, team: media}}
    machines:
{_machines("render", 6, "b", spot="true")}
  - name: jumpbox
    kind: standalone
    labels: {{tier: tools}}
    machines:
      - {{name: jumpbox, host: rack2-b}}
"""

SILENT = "web_7"  # it has polled, but not in the last hours
NEVER_POLLED = "jumpbox"


class Scene:
    """The service, those who use it, and what the pictures are about."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.maria = api_with_token(service, "maria", Role.ADMIN)
        self.jonas = api_with_token(service, "jonas", Role.OPERATOR)
        self.shop = api_with_token(service, "shop-team", Role.TENANT, label="team=shop")
        self.held = self.rollout = self.joint_host = ""
        self._play()

    def _play(self) -> None:
        service = self.service
        self.poll()
        service.clock.advance("95m")
        self.poll(SILENT)
        # Earlier work is done, before that which the pictures are about.
        _post(
            self.jonas,
            "/v1/rollouts",
            type="Freeze",
            groups=["render"],
            notice=900,
            at_once=1,
            description="Firmware of the network cards",
            ticket="CHG-1039",
        )
        for _ in range(8):
            service.clock.advance("10m")
            self.poll(SILENT)
        # The database has to wait, although its owners have approved it.
        _post(
            self.jonas,
            "/v1/events",
            type="Redeploy",
            machines=["orders-db-0"],
            description="Failing memory module",
            ticket="INC-2210",
            notice=5400,
            ignore_windows=True,
        )
        event = _post(
            self.jonas,
            "/v1/events",
            type="Reboot",
            machines=["orders-db-1"],
            description="Kernel 6.12.57",
            ticket="CHG-1044",
        )
        self.held = event["id"]
        service.clock.advance("2m")
        self.poll(SILENT)
        _post(self.shop, f"/v1/events/{self.held}/approve")
        self._rollout()
        self._host()

    def _rollout(self) -> None:
        service = self.service
        rollout = _post(
            self.maria,
            "/v1/rollouts",
            type="Reboot",
            labels=["tier=web"],
            notice=1200,
            bake=300,
            at_once=2,
            description="Kernel 6.12.57",
            ticket="CHG-1044",
        )
        self.rollout = rollout["id"]
        self.poll(SILENT)
        service.clock.advance("3m")
        for group in ("web", "api"):
            self._approve(group)
        for _ in range(4):
            service.clock.advance("5m")
            self.poll(SILENT)
        self._approve("api")
        self._approve("orders-db")
        (event,) = self._announced("web")
        _post(self.shop, f"/v1/events/{event.id}/postpone", by=1800)
        service.clock.advance("30s")

    def _approve(self, group: str) -> None:
        """Let a machine of the group approve what is announced to it."""
        (machine, *_) = (one for one in self.service.machines if one.group == group)
        for event in self._announced(group):
            self.service.approve(machine, event)

    def _announced(self, group: str) -> list[Event]:
        events = self.service.events
        return [one for one in events if one.group == group and one.status == "Scheduled"]

    def _host(self) -> None:
        self.joint_host = "rack3-b"
        _post(
            self.maria,
            f"/v1/hosts/{self.joint_host}/maintain",
            mode="reboot",
            notice=2700,
            description="BIOS update",
            ticket="CHG-1051",
        )
        self.service.clock.advance("90s")
        self.poll(SILENT)
        self._approve("render")

    def stop(self) -> None:
        """Stop the whole fleet."""
        _post(self.maria, "/v1/halts", note="Smoke in rack 2")

    def poll(self, *without: str) -> None:
        """Let all machines poll but some."""
        for machine in self.service.machines:
            if machine.name not in (*without, NEVER_POLLED):
                self.service.document(machine)


def _post(api: Api, path: str, **body: object) -> dict[str, Any]:
    answer = api.post(path, body or None)
    assert answer.status in (200, 201), answer.body
    found: dict[str, Any] = answer.json()
    return found


def _ids() -> Callable[[], str]:
    """Ids that look like others, and are the same every time."""
    random = Random(7)
    return lambda: str(uuid.UUID(int=random.getrandbits(128), version=4)).upper()


@contextmanager
def portal_scene() -> Iterator[Scene]:
    """Start the service, and bring about what the pictures show."""
    with (
        patch("socket.gethostname", return_value="control-1"),
        Service(FLEET, sockets=True, new_id=_ids()) as service,
    ):
        yield Scene(service)


ROWS, RACKS_IN_ROW, HOSTS_IN_RACK = 20, 10, 10
IN_ROW = RACKS_IN_ROW * HOSTS_IN_RACK
GROUPS, IN_GROUP = 400, 100
TEAMS = ("shop", "search", "media", "data")


def _large_fleet() -> dict[str, Any]:
    """Return 2,000 hosts in 20 rows, with 20 machines each: a group has five in every row, which
    are one update domain."""
    names = [
        (f"r{row:02}", f"r{row:02}-{rack:02}", f"r{row:02}-{rack:02}-{host:02}")
        for row in range(1, ROWS + 1)
        for rack in range(1, RACKS_IN_ROW + 1)
        for host in range(1, HOSTS_IN_RACK + 1)
    ]
    groups = []
    for number in range(GROUPS):
        team = TEAMS[number % len(TEAMS)]
        on = [(number + n * ROWS) % len(names) for n in range(IN_GROUP)]
        machines = [
            {
                "name": f"{team}-{number:03}_{n}",
                "host": names[host][2],
                "update_domain": host // IN_ROW,
            }
            for n, host in enumerate(on)
        ]
        group = {"name": f"{team}-{number:03}", "kind": "scale-set", "labels": {"team": team}}
        groups.append({**group, "machines": machines})
    return {
        "hosts": [
            {"name": name, "labels": {"row": row, "rack": rack}} for row, rack, name in names
        ],
        "maintenance": [
            {"name": "nights", "select": "team=data", "windows": ["22:00-04:00 Europe/Berlin"]},
            {"name": "release", "select": "team=shop", "blackouts": ["2027-01-22 to 2027-01-25"]},
        ],
        "groups": groups,
    }


class LargeScene:
    """A fleet of 40,000 machines on 2,000 hosts, with 2,000 events: a row is rebooted tonight."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.maria = api_with_token(service, "maria", Role.ADMIN)
        node = service._session.node
        groups, polled = node.store.groups.values(), node.platform.poll_index.polled
        for group in groups:
            service.document(group.machines[0].name)
        members = [(member.name, group.name) for group in groups for member in group.machines]
        for number, (name, of) in enumerate(members):
            if number % 997:  # some do not ask
                polled(name, of, "2020-07-01", 1, (), node.writer.now())
        for number in range(IN_ROW):
            rack, host = divmod(number, HOSTS_IN_RACK)
            _post(
                self.maria,
                f"/v1/hosts/r07-{rack + 1:02}-{host + 1:02}/maintain",
                mode="reboot",
                notice=3_600 * (rack + 1) + 60 * host,
                description="BIOS update",
                ticket="CHG-1051",
            )
        _post(
            self.maria,
            "/v1/rollouts",
            type="Reboot",
            host_labels=["row=r12"],
            notice=7_200,
            at_once=5,
            bake=600,
            description="Kernel 6.12.57",
            ticket="CHG-1044",
        )
        _post(self.maria, "/v1/hosts/r03-04-05/degrade", note="Failing fan")
        _post(self.maria, "/v1/hosts/r15-02-09/fail", note="Power supply")
        _post(self.maria, "/v1/hosts/r18-10-01/cordon", note="Waits for a new disk")
        for number, guest in enumerate(service.machines):
            if guest.host.startswith("r07") and number % 3:
                service.document(guest)
        service.clock.advance("50m")


@contextmanager
def large_scene() -> Iterator[LargeScene]:
    with (
        patch("socket.gethostname", return_value="control-1"),
        Service(sockets=True, new_id=_ids()) as service,
    ):
        api = Api(service.control_url)
        assert api.call("PUT", "/v1/fleet", _large_fleet()).status == 200
        yield LargeScene(service)
