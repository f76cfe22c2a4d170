"""Hosts to which no machine is moved, as commands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.testing import Service

FLEET = """
hosts: [h1, h2, h3]
groups:
  - name: db
    kind: availability-set
    machines:
      - {name: db-0, host: h1, update_domain: 0}
      - {name: db-1, host: h2, update_domain: 0}
      - {name: db-2, host: h2, update_domain: 0}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as made:
        made.document("db-0")
        yield made


def run(service: Service, *words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--url", service.control_url])


def printed(service: Service, *words: object) -> str:
    result = run(service, *words)
    assert result.exit_code == 0, result.output
    service._session.settle()
    return result.output


def host(service: Service, name: str) -> Any:
    return json.loads(run(service, "host", "show", name, "--json").stdout)


def where(service: Service, *names: str) -> list[str]:
    views = [json.loads(run(service, "machine", "show", n, "--json").stdout) for n in names]
    return [view["host"] for view in views]


def test_a_cordoned_host_gets_no_machine(service: Service) -> None:
    printed(service, "host", "cordon", "h3", "--note", "new fans")
    assert (host(service, "h3")["cordoned"], host(service, "h3")["cordon_note"]) == (
        True,
        "new fans",
    )
    service.redeploy("db-0").until_started(approve=True).until_over()
    assert where(service, "db-0") == ["h2"]
    result = run(service, "host", "maintain", "h2", "--evacuate")
    assert result.exit_code == 0, result.output  # to h1
    service.clock.advance("2h")
    assert set(where(service, "db-0", "db-1", "db-2")) == {"h1"}


def test_an_evacuated_host_is_no_target_until_it_is_returned(service: Service) -> None:
    printed(service, "host", "maintain", "h1", "--evacuate")
    service.clock.advance("2h")
    assert where(service, "db-0") == ["h3"]
    assert host(service, "h1")["cordoned"]
    printed(service, "host", "maintain", "h2", "--evacuate")
    service.clock.advance("2h")
    assert set(where(service, "db-0", "db-1", "db-2")) == {"h3"}
    result = run(service, "host", "drain", "h3")
    assert result.exit_code == 1
    assert "not cordoned" in result.stderr
    assert not host(service, "h3")["cordoned"]
    printed(service, "host", "return", "h1")
    printed(service, "host", "drain", "h3")
    service.clock.advance("4h")
    assert set(where(service, "db-0", "db-1", "db-2")) == {"h1"}


def test_draining_an_empty_host_cordons_it(service: Service) -> None:
    printed(service, "host", "drain", "h3")
    assert host(service, "h3")["cordoned"]


def test_returning_a_host_withdraws_its_evacuation(service: Service) -> None:
    printed(service, "host", "drain", "h2")
    assert len(service.document("db-0")["Events"]) == 2
    assert "'h2' is back" in printed(service, "host", "return", "h2")
    assert service.document("db-0")["Events"] == []
    assert not host(service, "h2")["cordoned"]
    assert "was not cordoned" in printed(service, "host", "return", "h2")


def test_returning_a_host_leaves_its_other_maintenance_alone(service: Service) -> None:
    printed(service, "host", "maintain", "h2", "--type", "Reboot")
    printed(service, "host", "cordon", "h2")
    printed(service, "host", "return", "h2")
    assert len(service.document("db-0")["Events"]) == 1


def test_a_cordon_is_in_the_list_the_history_and_the_explanation(service: Service) -> None:
    printed(service, "host", "cordon", "h2", "--note", "dusty")
    assert "healthy, cordoned" in printed(service, "host", "list")
    assert "cordoned (dusty)" in printed(service, "host", "explain", "h2")
    printed(service, "host", "uncordon", "h2")
    history = printed(service, "history", "--host", "h2")
    assert "host-cordoned" in history
    assert "dusty" in history
    assert "host-uncordoned" in history
    assert "was not cordoned" in printed(service, "host", "uncordon", "h2")


def test_a_degraded_host_is_no_target_cordoned_or_not(service: Service) -> None:
    printed(service, "host", "degrade", "h3")
    printed(service, "host", "cordon", "h3")
    printed(service, "host", "repair", "h3")
    assert host(service, "h3")["cordoned"]
    printed(service, "host", "degrade", "h3")
    assert "still not moved" in printed(service, "host", "uncordon", "h3")


def test_a_fleet_file_may_set_a_cordon_or_leave_it(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET.replace("h3]", "{name: h3, cordoned: true}]"))
    assert re.search("host h3: cordoned: .* True", printed(service, "apply", file))
    assert host(service, "h3")["cordoned"]
    file.write_text(FLEET)
    assert "nothing to change" in printed(service, "apply", file)
    assert host(service, "h3")["cordoned"]
    file.write_text(FLEET.replace("h3]", "{name: h3, cordoned: false}]"))
    printed(service, "apply", file)
    assert not host(service, "h3")["cordoned"]
    assert "nothing to change" in printed(service, "apply", file)


def test_applying_the_current_fleet_keeps_a_cordon(service: Service) -> None:
    printed(service, "host", "cordon", "h3")
    node = service._session.node
    difference = service._session.run(
        node.fleet_apply.fleet(node.fleet_apply.current(), by="test", plan=True)
    )
    assert difference.nothing  # type: ignore[union-attr]


def test_an_unknown_host_is_refused(service: Service) -> None:
    for verb in ("cordon", "uncordon", "drain", "return"):
        result = run(service, "host", verb, "h9")
        assert result.exit_code == 1
        assert "no host 'h9'" in result.stderr


def test_a_new_note_replaces_the_old_one_and_an_evacuation_keeps_it(service: Service) -> None:
    printed(service, "host", "cordon", "h3", "--note", "new fans")
    printed(service, "host", "cordon", "h3", "--note", "new board")
    printed(service, "host", "cordon", "h3")
    printed(service, "host", "maintain", "h3", "--evacuate")
    assert host(service, "h3")["cordon_note"] == "new board"
