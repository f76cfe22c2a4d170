"""Where no endpoint answers, one reads what was tried, why that may be, and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forewarn.client.discovery.diagnose import container, explain_unreachable, has_route

TRIED = [("http://169.254.169.254", "unreachable")]
HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
NEAR = "eth0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
DEFAULT = "eth0\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
BARRED = "*\tFEA9FEA9\t00000000\t0205\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n"
LINK_LOCAL = "eth0\t0000FEA9\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"


def put(root: Path, place: str, content: str = "") -> None:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_the_explanation_names_every_address_and_its_result(tmp_path: Path) -> None:
    explanation = explain_unreachable(
        [*TRIED, ("http://10.0.0.1", "refused"), ("http://10.0.0.1:8080", "answered 503")],
        tmp_path,
        {},
    )
    assert re.match(
        r"no endpoint answers: http://169\.254\.169\.254 .*reached,"
        r" http://10\.0\.0\.1 refuses .*, http://10\.0\.0\.1:8080 answered 503\. ",
        explanation,
    )
    assert "\n" not in explanation


def test_text_from_others_is_escaped(tmp_path: Path) -> None:
    assert "\x1b" not in explain_unreachable([("http://a", "answered \x1b[2J")], tmp_path, {})


@pytest.mark.parametrize(
    ("place", "content", "kind", "way_out"),
    [
        (".dockerenv", "", "a Docker container", "--network host"),
        ("run/.containerenv", "", "a Podman container", "--network host"),
        ("proc/1/environ", "A=b\0container=lxc\0C=d", "an LXC container", "169.254.169.254"),
        ("proc/1/environ", "container=strange", "a container", "--network host"),
        ("run/systemd/container", "systemd-nspawn\n", "a systemd-nspawn", "--private-network"),
        ("proc/1/cgroup", "0::/kubepods/pod7", "a Kubernetes pod", "hostNetwork: true"),
        ("proc/1/cgroup", "3:cpu:/docker/7", "a Docker container", "--network host"),
        ("proc/sys/kernel/osrelease", "5.15.1-microsoft-standard-WSL2", "WSL", "in Windows"),
    ],
)
def test_the_explanation_in_a_container_names_how_to_reach_the_endpoint(
    tmp_path: Path, place: str, content: str, kind: str, way_out: str
) -> None:
    put(tmp_path, place, content)
    response = explain_unreachable(TRIED, tmp_path, {})
    assert f"This is {kind}" in response
    assert way_out in response
    assert "FOREWARN_METADATA=http://" in response


def test_in_a_pod_the_explanation_names_network_policies(tmp_path: Path) -> None:
    put(tmp_path, ".dockerenv")
    explanation = explain_unreachable(TRIED, tmp_path, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    assert "Kubernetes pod" in explanation
    assert "egress" in explanation


def test_a_machine_is_not_taken_for_a_container(tmp_path: Path) -> None:
    put(tmp_path, "proc/1/cgroup", "0::/init.scope")
    put(tmp_path, "proc/sys/kernel/osrelease", "6.1.0-13-cloud-amd64")
    assert container(tmp_path, {}) is None


@pytest.mark.parametrize(
    ("table", "there"),
    [
        ("", True),  # nobody knows
        (HEAD + "what is this\n", True),
        (HEAD, False),
        (HEAD + NEAR, False),
        (HEAD + NEAR + DEFAULT, True),
        (HEAD + NEAR + LINK_LOCAL, True),
        (HEAD + DEFAULT + BARRED, False),
    ],
)
def test_a_missing_route_is_seen_in_the_routing_table(
    tmp_path: Path, table: str, there: bool
) -> None:
    put(tmp_path, "proc/net/route", table)
    assert has_route(tmp_path) is there
    assert ("no route" in explain_unreachable(TRIED, tmp_path, {})) is not there


@pytest.mark.parametrize(
    ("place", "content", "trouble", "response"),
    [
        ("sys/class/dmi/id/sys_vendor", "Amazon EC2\n", "answered 404", "on Amazon EC2"),
        (
            "sys/class/dmi/id/chassis_asset_tag",
            "7783-7084-3265-9085-8269-3286-77\n",
            "late",
            "is an Azure",
        ),
        ("x", "", "answered 404", "know this machine"),
        (".dockerenv", "", "answered 404", "know its address"),
        ("x", "", "refused", "service running"),
        ("x", "", "late", "not seem to be"),
    ],
)
def test_the_reason_follows_from_the_machine_and_the_failure(
    tmp_path: Path, place: str, content: str, trouble: str, response: str
) -> None:
    put(tmp_path, place, content)
    assert response in explain_unreachable([("http://169.254.169.254", trouble)], tmp_path, {})


def test_an_explanation_is_given_on_the_machine_of_the_test(tmp_path: Path) -> None:
    assert "no address" in explain_unreachable([])
