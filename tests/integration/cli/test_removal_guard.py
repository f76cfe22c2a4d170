"""Fleets and groups that would remove many machines by mistake, as commands and requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.core import Refused
from forewarn.service.fleet import read
from forewarn.service.fleet.removal_limit import RemovalLimit
from forewarn.testing import Service
from helpers.control_api import ask


def fleet_text(web: int, db: int = 10) -> str:
    machines = {
        "web": ", ".join(f"{{name: web-{n}}}" for n in range(web)),
        "db": ", ".join(f"{{name: db-{n}}}" for n in range(db)),
    }
    groups = [
        f"  - {{name: {name}, kind: availability-set, machines: [{members}]}}"
        for name, members in machines.items()
        if members
    ]
    return "\n".join(["groups:", *groups]) if groups else "groups: []\n"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(fleet_text(90), sockets=True) as made:
        made._session.node.fleet_apply.removal_limit = RemovalLimit.parse("20, 10%")
        yield made


def applied(service: Service, tmp_path: Path, text: str, *options: str) -> Result:
    file = tmp_path / "fleet.yaml"
    file.write_text(text)
    words = ["apply", str(file), *options, "--url", service.control_url]
    return CliRunner().invoke(app, words)


def machines(service: Service) -> int:
    return len(service.machines)


def test_an_apply_that_removes_more_than_a_tenth_has_to_give_the_number(
    service: Service, tmp_path: Path
) -> None:
    short = fleet_text(90 - 11)
    plan = applied(service, tmp_path, short, "--plan")
    assert "11 machines removed" in plan.output
    assert re.search("would be refused: .* --remove 11\n", plan.output)
    assert f"forewarn apply {tmp_path / 'fleet.yaml'} --remove 11 --if-match " in plan.stderr
    refused = applied(service, tmp_path, short)
    assert refused.exit_code == 1
    assert "11 of 100 machines" in refused.stderr
    assert ": web-79, web-80, web-81 and 8" in refused.stderr
    assert refused.stderr.strip().endswith("--remove 11")
    for wrong in ("10", "12", "1000"):
        assert applied(service, tmp_path, short, "--remove", wrong).exit_code == 1
        planned = applied(service, tmp_path, short, "--remove", wrong, "--plan")
        assert f"11 machines, not {wrong};" in planned.output
    assert machines(service) == 100
    planned = applied(service, tmp_path, short, "--plan", "--remove", "11")
    assert "would be refused" not in planned.output
    assert applied(service, tmp_path, short, "--remove", "11").exit_code == 0
    assert machines(service) == 89
    again = applied(service, tmp_path, short, "--remove", "11")
    assert again.output == "nothing to change\n"


@pytest.mark.parametrize(("left", "removed"), [(87, 3), (90, 0)])
def test_a_number_that_is_given_has_to_be_right_below_the_limit_too(
    service: Service, tmp_path: Path, left: int, removed: int
) -> None:
    text = fleet_text(left, 11)  # it also adds a machine
    for wrong in (removed + 1, removed + 2):
        refused = applied(service, tmp_path, text, "--remove", str(wrong))
        assert refused.exit_code == 1
        assert f"{removed} of 100 machines" in refused.stderr
        assert f", not {wrong};" in refused.stderr
        assert f"pass --remove {removed}\n" in refused.stderr
    answer = ask(service, "DELETE", "/v1/groups/db?remove=9")
    assert (answer.status, answer.body["hint"]["kind"]) == (409, "remove")
    assert machines(service) == 100
    assert applied(service, tmp_path, text, "--remove", str(removed)).exit_code == 0
    assert machines(service) == left + 11
    again = applied(service, tmp_path, text, "--remove", str(removed + 1))
    assert again.output == "nothing to change\n"


def test_ten_of_a_hundred_and_machines_that_change_groups_are_not_too_many(
    service: Service, tmp_path: Path
) -> None:
    assert applied(service, tmp_path, fleet_text(80)).exit_code == 0
    moved = fleet_text(80).replace("name: web,", "name: www,")
    assert applied(service, tmp_path, moved).exit_code == 0
    assert machines(service) == 90


def test_machines_that_are_gone_already_do_not_count(tmp_path: Path) -> None:
    with Service(fleet_text(20, 0), sockets=True) as service:
        service._session.node.fleet_apply.removal_limit = RemovalLimit.parse("1")
        for name in ("web-18", "web-19"):
            service[name].delete()
        service.clock.advance("1h")
        assert ask(service, "DELETE", "/v1/machines/web-18").status == 200
        assert applied(service, tmp_path, fleet_text(17, 0)).exit_code == 0
        assert machines(service) == 17


def test_an_empty_file_is_applied_only_with_the_number_and_never_unattended(
    service: Service, tmp_path: Path
) -> None:
    apply = service._session.node.fleet_apply
    for limit in (apply.removal_limit, None):
        apply.removal_limit = limit
        outcome = service._session.run(apply.fleet(read.parse("groups: []"), by="reload"))
        assert isinstance(outcome, Refused)
        assert "all 100 machines" in str(outcome)
    apply.removal_limit = RemovalLimit.parse("20, 10%")
    half = service._session.run(apply.fleet(read.parse(fleet_text(40)), by="reload"))
    assert isinstance(half, Refused)
    assert applied(service, tmp_path, "groups: []\n").exit_code == 1
    assert applied(service, tmp_path, "").exit_code == 1
    assert machines(service) == 100
    assert applied(service, tmp_path, "groups: []\n", "--remove", "100").exit_code == 0
    assert machines(service) == 0


def test_a_group_is_removed_only_with_the_number_of_its_machines(service: Service) -> None:
    body = {"kind": "availability-set", "machines": ["web-0", "web-1"]}
    for method, sent in (("DELETE", None), ("PUT", body)):
        answer = ask(service, method, "/v1/groups/web", sent)
        assert answer.status == 409
        assert answer.body["hint"]["kind"] == "remove"
    assert ask(service, "DELETE", "/v1/groups/web?remove=89").status == 409
    assert machines(service) == 100
    assert ask(service, "DELETE", "/v1/machines/db-0").status == 200  # it says what it removes
    assert ask(service, "DELETE", "/v1/groups/web?remove=90").status == 200
    assert machines(service) == 9
