"""What `forewarn dev --arm` makes and prints."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import typer

from forewarn.cli.commands import dev_config
from forewarn.core.access import Role
from forewarn.node import Node
from forewarn.service.access.tokens import CreatedToken, NewToken
from forewarn.service.fleet.removal_limit import RemovalLimit

MOST_LINES = 12  # to read before anything is tried
TENANT_FLEET = """
groups:
  - {name: web, kind: scale-set, subscription: s1, resource_group: shop, machines: [{name: web_0}]}
"""


def configure(directory: Path, arm: str = "127.0.0.1:0", **more: Any) -> Any:
    usual = dict.fromkeys(("speak_as", "record", "driver_command", "fleet"))
    scratch = directory / "scratch"
    scratch.mkdir(exist_ok=True)
    given = {
        "force": False,
        "speed": 1.0,
        "virtual": True,
        "addresses": "auto",
        "control": "127.0.0.1:0",
        "metadata": ["127.0.0.1:0"],
        "state": directory / "dev.db",
        "throttle": 0,
        "enable_delay": 0,
        "gates": [],
        "observe": False,
        "arm": arm,
        "scratch": scratch,
        **usual,
        **more,
    }
    return dev_config.configure(**given)


def lines(config: Any, *, with_token: bool = False) -> list[str]:
    async def printed() -> list[str]:
        async with Node(config) as node:
            if with_token:
                wanted = NewToken(name="a", role=Role.ADMIN)
                assert isinstance(await node.tokens.create(wanted, by="test"), CreatedToken)
            return [line.replace(node.arm_url, "URL") for line in dev_config._arm_lines(node)]

    return asyncio.run(printed())


def test_the_lines_to_paste_are_few_and_leave_the_profile_of_az_alone(tmp_path: Path) -> None:
    config = configure(tmp_path)
    printed = lines(config)
    assert len(printed) <= MOST_LINES
    assert not [line for line in printed if line.startswith("  http")]  # these are machines
    values = dict(re.findall(r"(\w+)=(\$\(.*?\)|\S+)", "\n".join(printed[1:3])))
    assert values["AZURE_CONFIG_DIR"] == "$(mktemp -d)"
    assert values["IDENTITY_ENDPOINT"] == "URL/identity"
    assert values["IDENTITY_HEADER"] == "dev"
    for name in ("REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"):
        assert values[name] == str(config.arm.tls.certificate)
    assert printed[4].endswith("az login --identity && az vm restart -g forewarn -n jumpbox")


@pytest.mark.skipif(os.name != "posix", reason="needs permissions of files")
def test_only_the_owner_can_read_the_key_and_nothing_is_left_beside_the_state(
    tmp_path: Path,
) -> None:
    tls = configure(tmp_path).arm.tls
    assert stat.S_IMODE(tls.key.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scratch"]


def test_with_tokens_the_lines_mention_that_one_is_needed(tmp_path: Path) -> None:
    printed = lines(configure(tmp_path), with_token=True)
    assert len(printed) <= MOST_LINES
    assert any("IDENTITY_HEADER=TOKEN" in line for line in printed)
    assert "forewarn token create" in printed[-1]


def test_a_fleet_of_scale_sets_elsewhere_is_named_as_it_is(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(TENANT_FLEET)
    printed = lines(configure(tmp_path, fleet=fleet))
    assert printed[4].endswith("az vmss restart -g shop -n web --instance-ids 0 --subscription s1")
    assert len(re.findall('"s1"', " ".join(printed[6:]))) == 2


def test_other_addresses_than_those_of_loopback_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit):
        configure(tmp_path, "0.0.0.0:0")
    assert "--arm-address 0.0.0.0:0: " in capsys.readouterr().err
    with pytest.raises(typer.BadParameter, match="'here'"):
        configure(tmp_path, "here")


def test_a_fleet_removes_only_a_few_machines_unless_it_is_forced(tmp_path: Path) -> None:
    usual, forced = (configure(tmp_path, force=force) for force in (False, True))
    assert usual.removal_limit == RemovalLimit(machines=20, percent=10)
    assert (usual.force_fleet, forced.force_fleet) == (False, True)
    assert forced.removal_limit is None
