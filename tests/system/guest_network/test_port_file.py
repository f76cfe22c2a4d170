"""forewarn-guests: the file of ports and the inventory become one transaction, or one line that
says what is wrong and where."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.guest_firewall import DEPLOY, FILLER, RULES
from helpers.waiting import LIMIT

INVENTORY = {
    "web_0": ["10.0.0.10", "fd00::10"],
    "web_1": ["10.0.0.11"],
    "silent": [],
    "pretended": ["127.0.1.8"],
}
A, B = "52:54:00:00:00:10", "52:54:00:00:00:11"


def run(
    room: Path, ports: str, inventory: str | None = None, *more: Path
) -> subprocess.CompletedProcess[str]:
    (room / "ports").write_text(ports)
    listed = [{"name": name, "addresses": known} for name, known in INVENTORY.items()]
    (room / "machines.json").write_text(json.dumps(listed) if inventory is None else inventory)
    machines = f"--machines={room / 'machines.json'}"
    argv = [sys.executable, str(FILLER), str(room / "ports"), *map(str, more), machines]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LIMIT)


def elements(output: str, name: str) -> list[str]:
    body = output.partition(f"add element {name} {{\n")[2].partition("}")[0]
    return [line.strip(" ,") for line in body.splitlines()]


def test_a_machine_has_the_addresses_of_the_inventory_and_the_one_of_its_mac(
    tmp_path: Path,
) -> None:
    output = run(tmp_path, f"# who is where\nhost 10.0.0.1\nvnet0 {A.upper()} web_0 # the first\n")
    assert output.returncode == 0, output
    assert elements(output.stdout, "bridge forewarn macs") == [f'"vnet0" . {A}']
    assert elements(output.stdout, "bridge forewarn guests4") == [f'"vnet0" . {A} . 10.0.0.10']
    assert elements(output.stdout, "bridge forewarn guests6") == [
        f'"vnet0" . {A} . fd00::10',
        f'"vnet0" . {A} . fe80::5054:ff:fe00:10',
    ]
    assert elements(output.stdout, "bridge forewarn owned4") == ["10.0.0.1", "10.0.0.10"]
    assert output.stderr.startswith("note: 3 of 4 ")


def test_the_first_file_with_a_port_counts(tmp_path: Path) -> None:
    (tmp_path / "seen").write_text(f"vnet0 {B} web_1\nvnet1 {B} web_1\n")
    ran = run(tmp_path, f"host 10.0.0.1\nvnet0 {A} web_0\n", None, tmp_path / "seen")
    assert ran.returncode == 0, ran
    macs = [f'"vnet0" . {A}', f'"vnet1" . {B}']
    assert elements(ran.stdout, "bridge forewarn macs") == macs
    (tmp_path / "seen").write_text("vnet1 wrong web_1\n")
    ran = run(tmp_path, f"vnet0 {A} web_0\n", None, tmp_path / "seen")
    assert f"{tmp_path / 'seen'}:1: 'wrong' is not the MAC address" in ran.stderr


def test_an_empty_port_file_flushes_the_sets(tmp_path: Path) -> None:
    output = run(tmp_path, "")
    assert output.returncode == 0
    assert "add element" not in output.stdout
    assert output.stdout.count("flush set") == 12
    assert output.stdout.count("flush map") == 3


def test_a_file_without_machines_needs_no_inventory(tmp_path: Path) -> None:
    output = run(tmp_path, "host 10.0.0.1\nlearn\n", inventory="nonsense")
    assert (output.returncode, output.stderr) == (0, "")
    assert "unregistered { ether : goto learning }" in output.stdout


def test_a_port_of_an_unknown_machine_is_only_watched_while_ports_are_learned(
    tmp_path: Path,
) -> None:
    output = run(tmp_path, f"vnet0 {A} web_0\nvnet1 {B} who\nlearn\n")
    assert output.returncode == 0
    assert elements(output.stdout, "bridge forewarn registered") == ['"vnet0"']
    assert "note: vnet1 " in output.stderr
    assert "'who'" in output.stderr


def test_a_machine_at_two_ports_says_which_addresses_are_where(tmp_path: Path) -> None:
    output = run(tmp_path, f"vnet0 {A} web_0 10.0.0.10\nvnet1 {B} web_0 fd00::10 fe80::77\n")
    assert elements(output.stdout, "inet forewarn routed4") == ['"vnet0" . 10.0.0.10']
    assert '"vnet1" . fe80::77' in elements(output.stdout, "inet forewarn routed6")


@pytest.mark.parametrize(
    ("ports", "why"),
    [
        ("vnet0 web_0", "'vnet0 web_0' is not "),
        (f"a/b {A} web_0", "'a/b' is not .*port name"),
        (f'v"}};flush {A} web_0', "port name"),
        (f"a-port-with-a-long-name {A} web_0", "up to 15 letters"),
        ("vnet0 52:54:00:00:10 web_0", "'52:54:00:00:10' .*MAC address"),
        ("vnet0 ff:ff:ff:ff:ff:ff web_0", "'ff:ff:ff:ff:ff:ff' .*MAC address"),
        (f"vnet0 {A} web_9", "no machine 'web_9'"),
        (f"vnet0 {A} silent", "'silent' has no address"),
        (f"vnet0 {A} pretended", "127.0.1.8 of 'pretended' .*loopback"),
        (f"vnet0 {A} web_1 10.0.0.10", "10.0.0.10 is not .*'web_1'"),
        (f"vnet0 {A} web_1 ten", "'ten' is not "),
        (f"vnet0 {A} web_1 fe80::1%br0", "follows the %"),
        ("host fe80::1%br0", "follows the %"),
        (f"vnet0 {A} web_0\nvnet1 {A} web_1", f"{A} .*MAC address of vnet0"),
        (f"vnet0 {A} web_0\nvnet1 {B} web_0", "10.0.0.10 .*to vnet0"),
        (f"host 10.0.0.10\nvnet0 {A} web_0", "10.0.0.10 .*to host"),
    ],
)
def test_an_invalid_port_file_is_refused_with_its_line(
    tmp_path: Path, ports: str, why: str
) -> None:
    output = run(tmp_path, ports)
    assert output.returncode == 1
    assert output.stdout == ""
    line = len(ports.splitlines())
    assert output.stderr.startswith(f"forewarn-guests: {tmp_path / 'ports'}:{line}: ")
    assert re.search(why, output.stderr)


def test_no_machine_has_the_endpoints_address(tmp_path: Path) -> None:
    inventory = '[{"name":"web_0","addresses":["169.254.169.254"]}]'
    output = run(tmp_path, f"vnet0 {A} web_0", inventory)
    assert output.returncode == 1
    assert "169.254.169.254 is the endpoint" in output.stderr


@pytest.mark.parametrize("inventory", ["{", "[1]", '[{"name":"web_0"}]', '{"machines":[]}'])
def test_an_invalid_inventory_is_refused(tmp_path: Path, inventory: str) -> None:
    output = run(tmp_path, f"vnet0 {A} web_0", inventory)
    assert (output.returncode, output.stdout) == (1, "")
    assert "machines" in output.stderr


def test_the_example_is_a_file_of_ports(tmp_path: Path) -> None:
    output = run(tmp_path, (DEPLOY / "ports.example").read_text())
    assert output.returncode == 0, output.stderr
    assert len(elements(output.stdout, "bridge forewarn macs")) == 2


def test_every_counter_is_explained() -> None:
    counters = re.findall(r"^    counter (\w+ .*)$", RULES.read_text(), re.MULTILINE)
    assert len(counters) > 15
    assert [line for line in counters if not re.search(r'\{ comment ".+" \}', line)] == []


def test_every_file_is_mentioned() -> None:
    text = (DEPLOY.parents[1] / "docs/operate/networking.md").read_text()
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert [path.name for path in files if path.name not in text] == []


@pytest.mark.parametrize("address", ["fd00::1%x }\nflush ruleset\n#", "10.0.0.1 }", "", 5, None])
def test_an_inventory_with_more_than_addresses_becomes_no_rule(
    tmp_path: Path, address: object
) -> None:
    """Who can write to the inventory cannot write to the host's rules."""
    inventory = json.dumps([{"name": "web_0", "addresses": [address]}])
    output = run(tmp_path, f"vnet0 {A} web_0\n", inventory)
    assert (output.returncode, output.stdout) == (1, "")
    assert len(output.stderr.splitlines()) == 1
