"""Settings that are reloaded while the service runs, and settings that need a restart."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forewarn.core.access import Role
from forewarn.core.time import SECOND
from forewarn.drivers.command.driver import CommandDriver
from forewarn.drivers.command.options import Program
from forewarn.node.config import Tls
from forewarn.node.daemon.reload import Reloader, Report
from forewarn.node.settings import Settings, config, load
from forewarn.testing import SAMPLE, Service
from helpers.certificates import Authority
from helpers.serve_process import FLEET
from helpers.token_api import Api, api_with_token
from helpers.waiting import LIMIT

GUESTS = FLEET.replace("127.0.0.", "10.0.0.")  # of an endpoint that is not on loopback


class Reloaded:
    def __init__(self, directory: Path, service: Service, before: str = "") -> None:
        self._file = directory / "serve.toml"
        self._service = service
        self._file.write_text(before)
        output, _ = load(self._file, {})
        self.reloading = Reloader(output, lambda: load(self._file, {}))

    def __call__(self, text: str) -> Report:
        self._file.write_text(text)
        return self._service._session.run(self.reloading.reload_node(self._service._session.node))


def test_a_longer_grace_holds_for_the_outage_there_was_and_a_shorter_one_frees_at_once(
    tmp_path: Path,
) -> None:
    with Service(SAMPLE) as service:
        reload = Reloaded(tmp_path, service)
        service.schedule("Reboot", "web_0")
        service.document("web_0")
        service.clock.interrupt("20m")
        assert reload('start_grace = "10m"').reloaded == ("start_grace",)
        service.clock.advance("9m59s")
        assert service.document("web_0")["Events"][0]["EventStatus"] == "Scheduled"
        reload('start_grace = "5m"')
        service._session.settle()
        service.clock.advance("1s")
        assert service.document("web_0")["Events"][0]["EventStatus"] == "Started"


def test_a_shorter_silence_disables_a_group_when_it_has_passed(tmp_path: Path) -> None:
    with Service(SAMPLE, silence="24h") as service:
        reload = Reloaded(tmp_path, service)
        service.document("web_0")
        service.clock.advance("2h")
        assert reload('silence = "3h"').reloaded == ("silence",)
        service.clock.advance("59m")
        assert service._session.node.machine_index.group("web").enabled  # type: ignore[union-attr]
        service.clock.advance("2m")
        assert not service._session.node.machine_index.group("web").enabled  # type: ignore[union-attr]


def test_the_grace_that_a_trace_is_judged_by_stays_while_it_is_recorded(tmp_path: Path) -> None:
    with Service(SAMPLE, record=tmp_path / "trace") as service:
        reload = Reloaded(tmp_path, service)
        report = reload('start_grace = "10m"\nenable_delay = "1s"')
        assert (report.reloaded, report.restart) == (("enable_delay",), ("start_grace",))
        rules = service._session.node.writer.rules
        assert (rules.start_grace, rules.enable_delay) == (60 * SECOND, SECOND)


def test_limits_hold_for_connections_there_are(tmp_path: Path) -> None:
    with Service(SAMPLE, sockets=True, front=True) as service:
        reload = Reloaded(tmp_path, service)
        assert reload("max_connections_per_machine = 1").reloaded[-1].startswith("max_connections")
        service.document("web_0")  # the first of all closes its connection
        with connection(service) as first, connection(service) as second:
            assert [asked(first), asked(second)] == [200, 429]


def test_reloaded_gates_and_programs_are_used_from_the_next_call_on(tmp_path: Path) -> None:
    driver = CommandDriver(Program(words=("/bin/false",)))
    before = 'driver = "command"\n[command]\nprogram = ["false"]\n'
    with Service(SAMPLE, driver=driver) as service:
        reload = Reloaded(tmp_path, service, before)
        refused = service._session.node.gates.gate_problem(_gate("well"))
        assert refused is not None
        report = reload(before.replace("false", "true") + 'timeout = "9s"\n[gates]\nwell = ["sh"]')
        assert set(report.reloaded) == {"command.program", "command.timeout", "gates"}
        assert service._session.node.gates.gate_problem(_gate("well")) is None
        service.document("web_0")
        event = service.schedule("Reboot", "web_0")
        service.document("web_0")
        assert service.approve("web_0", event).status == 200
        service._session.settle()
        assert service.document("web_0")["Events"] == []  # carried out by the one that can


def test_another_driver_takes_a_restart(tmp_path: Path) -> None:
    with Service(SAMPLE) as service:
        report = Reloaded(tmp_path, service)('driver = "command"\n[command]\nprogram = ["true"]')
        assert report.reloaded == ()
        assert set(report.restart) >= {"driver", "command.program"}


NODES = (
    'nodes = "127.0.0.1:8171"\nnodes_certificate = "a.pem"\nnodes_key = "a.key"\n'
    'nodes_authority = "authority.pem"'
)
OWN = (
    'nodes = "127.0.0.1:8171"\nauthority = "here"\nnodes_addresses = ["127.0.0.1:8171"]\n'
    'certificate_life = "1d"'
)
OTHERS = {  # a value of each setting that is not the default, with what it takes
    "fleet": 'fleet = "fleet.yaml"',
    "state": 'state = "other.db"',
    "name": 'name = "c2"',
    "lease": 'lease = "3s"',
    "replicated": 'replicated = "managed"',
    "local_directory": 'local_directory = "elsewhere"',
    "metadata": 'metadata = "127.0.0.1:81"',
    "control": 'control = "0.0.0.0:8170"\nallow_plain_control = true',
    "control_names": 'control_names = ["a.example"]',
    "control_proxies": 'control_proxies = ["127.0.0.1"]',
    "tls_certificate": 'tls_certificate = "a.pem"\ntls_key = "a.key"',
    "tls_key": 'tls_certificate = "a.pem"\ntls_key = "a.key"',
    "allow_plain_control": "allow_plain_control = true",
    "arm": 'arm = "127.0.0.1:8173"\ntls_certificate = "a.pem"\ntls_key = "a.key"',
    "identities": 'identities = "secret"\narm = "127.0.0.1:8173"\n'
    'tls_certificate = "a.pem"\ntls_key = "a.key"',
    "allow_other_addresses": 'allow_other_addresses = true\nmetadata = "0.0.0.0:80"',
    "history": 'history = "7d"',
    "record": 'record = "trace"',
    "throttle": "throttle = 5",
    "max_connections_per_machine": "max_connections_per_machine = 2",
    "max_connections": "max_connections = 100",
    "front": "front = false",
    "observe": "observe = true",
    "ui": "ui = false",
    "faults": "faults = true",
    "enable_delay": 'enable_delay = "1s"',
    "notify": '[[notify]]\nname = "a"\ncloudevents = { url = "http://127.0.0.1:9" }',
    "max_removals": 'max_removals = "5"',
    "placement": 'placement = "file"',
    "inventory": 'inventory = "report"',
    "inventory_groups": 'inventory_groups = ["web"]',
    "on_crash": 'inventory = "follow"\non_crash = "restart"',
    "unreported_moves": 'unreported_moves = "hold"',
    "silence": 'silence = "1h"',
    "start_grace": 'start_grace = "10m"',
    "max_clock_step": 'max_clock_step = "10m"',
    "max_downtime": 'max_downtime = "7d"',
    "driver": 'driver = "command"\n[command]\nprogram = ["true"]',
    "command": 'driver = "command"\n[command]\nprogram = ["true"]',
    **dict.fromkeys(("nodes", "nodes_certificate", "nodes_key", "nodes_authority"), NODES),
    **dict.fromkeys(("authority", "nodes_addresses", "certificate_life"), OWN),
    "nodes_host": 'nodes = "/run/nodes"\nnodes_host = "host-a"',
    "log": 'log = "json"',
    "log_level": 'log_level = "error"',
    "traces": 'traces = "http://127.0.0.1:4318"',
    "gates": '[gates]\nwell = ["sh"]',
    "oidc": '[oidc]\nissuer = "http://127.0.0.1:1"\naudience = "forewarn"\n'
    '[[oidc.access]]\nmember_of = "ops"\nrole = "admin"',
}


def test_settings_in_force_after_a_reload_can_be_started_with(
    tmp_path: Path,
) -> None:
    """A process that is started later does: with the old of what needs a restart, and with that
    alone, whichever setting it is."""
    fields = {field.name for field in msgspec.structs.fields(Settings)}
    assert set(OTHERS) == fields - {"driver_options"} | {"command"}
    tmp_path.joinpath("fleet.yaml").write_text(GUESTS)
    tmp_path.joinpath("secret").write_text("s" * 32)
    Authority(tmp_path).issue("127.0.0.1", into=Tls(tmp_path / "a.pem", tmp_path / "a.key"))
    with Service(FLEET, sockets=True) as service:
        for key, text in OTHERS.items():
            reload = Reloaded(tmp_path, service)
            before = reload.reloading.loaded.settings
            report = reload(text)
            wanted, in_force = load(tmp_path / "serve.toml", {})[0], reload.reloading.loaded
            config(in_force)
            assert not report.refused
            assert report.reloaded or report.restart, key
            for field in msgspec.structs.fields(Settings):
                taken = wanted.settings if field.name in report.reloaded else before
                assert getattr(in_force.settings, field.name) == getattr(taken, field.name), key
            reload("")


def test_the_only_way_to_sign_in_is_not_removed(tmp_path: Path) -> None:
    """Without tokens, the API would be open to every local program."""
    with Service(FLEET, sockets=True) as service:
        reload = Reloaded(tmp_path, service)
        assert reload(OTHERS["oidc"]).reloaded == ("oidc",)
        report = reload("throttle = 5")
        assert report.refused
        assert report.refusal.startswith("oidc: ")
        assert service._session.node.endpoint.limits.throttle == 0
        assert Api(service.control_url).get("/v1/status").status == 401
        api_with_token(service, "root", Role.ADMIN)
        assert reload("throttle = 5").reloaded == ("throttle", "oidc")
        assert Api(service.control_url).get("/v1/status").status == 401


def test_a_fleet_that_would_remove_what_has_an_event_is_not_applied(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(GUESTS)
    with Service(FLEET) as service:
        reload = Reloaded(tmp_path, service)
        service.schedule("Reboot", "web-0")
        fleet.write_text(GUESTS.replace("web-0", "web-9"))
        report = reload('fleet = "fleet.yaml"')
        (problem,) = report.problems
        assert "not applied" in problem
        assert service._session.node.machine_index.machine("web-0") is not None


def test_other_names_of_the_control_api_hold_at_once(tmp_path: Path) -> None:
    with Service(SAMPLE) as service:
        assert Reloaded(tmp_path, service)('control_names = ["a.example"]').reloaded == (
            "control_names",
        )
        assert service._session.node.control_names == ("a.example",)


@contextlib.contextmanager
def connection(service: Service) -> Iterator[http.client.HTTPConnection]:
    where = urlsplit(service.url("web_0"))
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=LIMIT)
    try:
        yield connection
    finally:
        connection.close()


def asked(connection: http.client.HTTPConnection) -> int:
    path = "/metadata/scheduledevents?api-version=2020-07-01"
    connection.request("GET", path, headers={"Metadata": "true"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def _gate(command: str) -> Any:
    from forewarn.core.rollouts.model import Gate

    return Gate(command=command, timeout=60 * SECOND)
