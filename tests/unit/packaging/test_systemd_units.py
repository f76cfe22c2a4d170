"""The systemd units that are shipped: valid, confined, and in agreement with the settings."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from forewarn.node.listening.socket_activation import CONTROL, METADATA, NODES
from forewarn.node.settings import gather
from forewarn.node.settings.host_node import load_node
from forewarn.service.telemetry.health import LOOP_PATIENCE, OVERDUE_PATIENCE, STORE_PATIENCE
from helpers.paths import ROOT

UNITS = ROOT / "deploy/systemd"
OPTIONAL = "forewarn-metadata-8080.socket"  # for those who enable it
LOCAL_NODE = "forewarn-nodes.socket"  # likewise
NAMES = (
    *("forewarn.service", "forewarn-metadata.socket", "forewarn-control.socket"),
    *(OPTIONAL, LOCAL_NODE),
)
MOST_EXPOSED = 2.0  # of 10
NODE_UNITS = ROOT / "deploy/node"
NODE_NAMES = ("forewarn-node.service", "forewarn-node.socket")
NETWORK = ROOT / "deploy/network/forewarn-network.service"
SHIPPED = sorted((ROOT / "deploy").rglob("*.service"))


def unit(name: str) -> configparser.RawConfigParser:
    made = configparser.RawConfigParser(strict=False, delimiters=["="], comment_prefixes=["#"])
    made.optionxform = str  # type: ignore[assignment,method-assign]
    made.read((NODE_UNITS if name in NODE_NAMES else UNITS) / name)
    return made


def analyze(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("needs systemd-analyze: tools/test-packages as root")
        pytest.skip("needs systemd-analyze: apt-get install systemd")
    argv = ("systemd-analyze", *argv)
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The units, with a program that is there."""
    for name in NAMES:
        text = (UNITS / name).read_text().replace("/usr/bin/forewarn", "/bin/true")
        (tmp_path / name).write_text(text)
    return tmp_path


def test_systemd_analyze_verify_reports_nothing(directory: Path) -> None:
    checked = analyze("verify", *(f"./{name}" for name in NAMES), cwd=directory)
    ours = [line for line in checked.stderr.splitlines() if "forewarn" in line]
    assert (checked.returncode, ours) == (0, [])


def test_a_mistake_in_a_unit_is_found(directory: Path) -> None:
    file = directory / "forewarn.service"
    file.write_text(file.read_text().replace("ProtectSystem=strict", "ProtectSytem=strict"))
    checked = analyze("verify", "./forewarn.service", cwd=directory)
    assert "ProtectSytem" in checked.stderr


def test_the_service_is_exposed_as_little_as_promised(directory: Path) -> None:
    found = analyze("security", "--offline=true", "--no-pager", "./forewarn.service", cwd=directory)
    level = re.search(r"Overall exposure level for forewarn\.service: ([0-9.]+)", found.stdout)
    assert level is not None, found.stderr
    assert float(level[1]) < MOST_EXPOSED
    promised = re.search(r"gives it ([0-9.]+)", (ROOT / "docs/operate/install.md").read_text())
    assert promised is not None
    assert promised[1] == level[1]


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda path: path.name)
def test_every_service_is_valid_and_confined(tmp_path: Path, shipped: Path) -> None:
    assert {UNITS / "forewarn.service", NODE_UNITS / "forewarn-node.service", NETWORK} <= set(
        SHIPPED
    )
    programs = "/usr/(?:bin/forewarn(?:-node|-driver)?|sbin/nft|local/sbin/forewarn-ports)(?= |$)"
    text = re.sub(programs, "/bin/true", shipped.read_text(), flags=re.MULTILINE)
    (tmp_path / shipped.name).write_text(text)
    for socket in (*UNITS.glob("*.socket"), *NODE_UNITS.glob("*.socket")):
        (tmp_path / socket.name).write_text(socket.read_text())
    checked = analyze("verify", f"./{shipped.name}", cwd=tmp_path)
    complaints = [line for line in checked.stderr.splitlines() if "forewarn" in line]
    assert (checked.returncode, complaints) == (0, [])
    argv = ("security", "--offline=true", "--no-pager", f"./{shipped.name}")
    report = analyze(*argv, cwd=tmp_path).stdout
    level = re.search(rf"Overall exposure level for {shipped.name}: ([0-9.]+)", report)
    assert level is not None, report
    assert float(level[1]) <= MOST_EXPOSED


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda path: path.name)
def test_every_service_has_a_limit_of_memory_and_is_slowed_down_before_it(shipped: Path) -> None:
    service = unit(str(shipped))["Service"]
    assert 0 < mebibytes(service["MemoryHigh"]) < mebibytes(service["MemoryMax"])


def test_the_memory_of_the_service_is_what_the_documented_sizing_gives() -> None:
    page = (ROOT / "docs/operate/install.md").read_text()
    costs = dict(re.findall(r"^\| `(\w+)` \| ([0-9.]+ [KM]iB) \|", page, flags=re.MULTILINE))
    cost = {name: mebibytes(amount) for name, amount in costs.items()}
    machines, nodes = 100_000, 2_000
    needed = (
        *(cost["base"], cost["requests"]),
        machines * cost["machine"],
        nodes * cost["node"],
        gather(ROOT / "deploy/forewarn.toml").settings.max_connections * cost["connection"],
    )
    assert f"| {machines:,} | {nodes:,} | {sum(needed):,.0f} MiB |" in page
    assert sum(needed) <= mebibytes(unit("forewarn.service")["Service"]["MemoryHigh"])


def mebibytes(amount: str) -> float:
    number, suffix = re.fullmatch(r"([0-9.]+) ?([KMG])(?:iB)?", amount).groups()  # type: ignore[union-attr]
    return float(number) * {"K": 1 / 1024, "M": 1, "G": 1024}[suffix]


def test_what_confines_it_is_what_the_level_comes_from(directory: Path) -> None:
    """Without it the same unit is far above."""
    file = directory / "forewarn.service"
    head = file.read_text().partition("CapabilityBoundingSet=")[0]
    file.write_text(head)
    argv = (
        "security",
        "--offline=true",
        f"--threshold={MOST_EXPOSED * 10:.0f}",
        "./forewarn.service",
    )
    assert analyze(*argv, cwd=directory).returncode == 1  # fmt: skip


def test_the_unit_of_a_node_confines_it_as_the_service_is_confined() -> None:
    service, node = (
        (directory / name).read_text().partition("CapabilityBoundingSet=")[2]
        for directory, name in ((UNITS, "forewarn.service"), (NODE_UNITS, NODE_NAMES[0]))
    )
    assert node == service


def test_the_units_of_a_node_agree_with_its_settings_and_keep_its_socket_open() -> None:
    settings = load_node(NODE_UNITS / "node.toml", {})
    service, socket = (unit(name) for name in NODE_NAMES)
    metadata = unit("forewarn-metadata.socket")["Socket"]
    assert dict(socket["Socket"]) == {**metadata, "Service": NODE_NAMES[0]}
    assert socket["Socket"]["ListenStream"] == settings.settings.metadata
    assert settings.settings.journal == f"/var/lib/{service['Service']['StateDirectory']}"
    assert service["Service"]["Sockets"] == NODE_NAMES[1]
    assert service["Service"]["Type"] == "notify"
    assert int(service["Service"]["LimitNOFILE"]) > settings.settings.max_connections
    start = service["Service"]["ExecStart"]
    check = start.replace("forewarn-node ", "forewarn-node check ")
    assert f"\nExecReload={check}\nExecReload=" in (NODE_UNITS / NODE_NAMES[0]).read_text()
    assert service["Unit"]["StartLimitIntervalSec"] == "0"
    assert service["Service"]["RestartSec"] == unit("forewarn.service")["Service"]["RestartSec"]
    assert not {"PartOf", "BindsTo"} & set(socket["Unit"])
    user = service["Service"]["User"]
    assert (NODE_UNITS / "sysusers.conf").read_text().splitlines()[-1].split()[1] == user


def test_sockets_listen_where_the_settings_say_and_are_named_as_they_are_looked_for() -> None:
    settings = gather(ROOT / "deploy/forewarn.toml").settings
    for name, where in ((METADATA, settings.metadata), (CONTROL, settings.control)):
        socket = unit(f"forewarn-{name}.socket")["Socket"]
        assert (socket["FileDescriptorName"], socket["ListenStream"]) == (name, where)
        assert socket["Service"] == "forewarn.service"


def test_only_the_user_of_a_node_can_open_the_socket_for_one_on_the_same_host() -> None:
    local = unit(LOCAL_NODE)
    assert dict(local["Socket"]) == {
        "ListenStream": "/run/forewarn-nodes.sock",
        "SocketUser": unit(NODE_NAMES[0])["Service"]["User"],
        "SocketMode": "0600",
        "FileDescriptorName": NODES,
        "RemoveOnStop": "yes",
        "Service": "forewarn.service",
    }
    # Where it is enabled, the service is never started without it.
    assert "forewarn.service" in local["Install"]["WantedBy"].split()
    assert LOCAL_NODE in unit(NODE_NAMES[0])["Unit"]["After"].split()
    for path in ("deploy/forewarn.toml", "deploy/node/node.toml", "docs/operate/install.md"):
        assert local["Socket"]["ListenStream"] in (ROOT / path).read_text()


def test_the_second_port_is_like_the_first_and_optional_sockets_start_only_if_enabled() -> None:
    first, second = (dict(unit(name)["Socket"]) for name in (NAMES[1], OPTIONAL))
    host = first["ListenStream"].rpartition(":")[0]
    assert second == {**first, "ListenStream": f"{host}:8080"}
    service = unit("forewarn.service")
    for section, keys in (("Unit", ("Requires", "Wants", "After")), ("Service", ("Sockets",))):
        named = " ".join(service[section].get(key, "") for key in keys)
        assert OPTIONAL not in named
        assert LOCAL_NODE not in named


def test_the_service_starts_after_the_clock_is_synchronized() -> None:
    service = unit("forewarn.service")["Unit"]
    assert "time-sync.target" in service["After"].split()
    assert "time-sync.target" in service["Wants"].split()


def test_a_restart_of_the_service_keeps_its_sockets_open() -> None:
    for name in NAMES[1:]:
        assert "PartOf" not in unit(name)["Unit"]
        assert "BindsTo" not in unit(name)["Unit"]


def test_a_start_that_is_refused_never_closes_the_sockets() -> None:
    """Neither by the limit of the service, which its sockets share, nor by their own."""
    service = unit("forewarn.service")
    assert service["Unit"]["StartLimitIntervalSec"] == "0"
    assert "StartLimitBurst" not in service["Unit"]
    assert service["Service"]["Restart"] == "on-failure"
    assert "RestartPreventExitStatus" not in service["Service"]
    within, most = 2.0, 20  # TriggerLimitIntervalSec=, TriggerLimitBurst=, unless the units say
    pause = float(service["Service"]["RestartSec"].removesuffix("s"))
    assert pause > within / most
    for name in NAMES[1:]:
        assert not [key for key in unit(name)["Socket"] if key.startswith("TriggerLimit")]


@pytest.mark.parametrize(
    "page",
    ["access-control", "backup", "install", "guide", "postgresql", "several-control-nodes"],
)
def test_pages_that_stop_the_service_stop_its_sockets_too(page: str) -> None:
    """Of the service alone, the next poll starts another."""
    text = (ROOT / f"docs/operate/{page}.md").read_text()
    stops = re.findall(r"systemctl stop ([^\n`;]+)", text)
    assert stops or page == "guide"
    for output in stops:
        words = set(output.split())
        assert words >= set(NODE_NAMES if words & set(NODE_NAMES) else NAMES), output


def test_the_service_can_do_what_it_is_asked() -> None:
    service = unit("forewarn.service")["Service"]
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"  # the last of two lines
    check = service["ExecStart"].replace(" serve ", " config check ")
    assert f"\nExecReload={check}\nExecReload=" in (UNITS / "forewarn.service").read_text()
    settings = gather(ROOT / "deploy/forewarn.toml").settings
    assert settings.state.startswith(f"/var/lib/{service['StateDirectory']}/")
    assert (
        f"--config /etc/{service['ConfigurationDirectory']}/forewarn.toml" in service["ExecStart"]
    )
    assert int(service["LimitNOFILE"]) > settings.max_connections


def test_the_watchdog_waits_longer_than_the_own_health_check_of_the_service() -> None:
    watchdog = int(unit("forewarn.service")["Service"]["WatchdogSec"].removesuffix("s"))
    assert watchdog > max(LOOP_PATIENCE, OVERDUE_PATIENCE, STORE_PATIENCE)


def test_the_drop_in_for_programs_is_valid_when_all_of_it_is_used(directory: Path) -> None:
    example = (UNITS / "forewarn.service.d/programs.conf.example").read_text()
    drop_in = directory / "forewarn.service.d/programs.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(re.sub(r"^#(?=[A-Z]\w+=)", "", example, flags=re.MULTILINE))
    checked = analyze("verify", "./forewarn.service", cwd=directory)
    ours = [line for line in checked.stderr.splitlines() if "forewarn" in line]
    assert (checked.returncode, ours) == (0, [])
