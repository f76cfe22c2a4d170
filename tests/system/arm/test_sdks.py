"""azure-mgmt-compute, unmodified, with forewarn for its cloud: the current version, and one that is
years older."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.azure_tools import Sdk, environment, names
from helpers.certificates import Authority
from helpers.serve_process import running_service, write_settings
from helpers.token_api import token

FLEET = """
hosts: [h1, h2]
groups:
  - name: jump
    kind: standalone
    machines: [{name: jumpbox, host: h1}]
  - name: sql
    kind: availability-set
    machines: [{name: sql-0, host: h1}, {name: sql-1, host: h2, update_domain: 1}]
  - name: web
    kind: scale-set
    policy: {terminate_notice: 5m}
    machines:
      - {name: web_0, host: h1}
      - {name: web_1, host: h2, update_domain: 1}
      - {name: web_2, host: h1, spot: true}
"""
GROUP = "forewarn"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, arm=True) as service:
        for machine in service.machines:
            machine.get()
        yield service


@pytest.fixture(params=["current", "old"])
def sdk(service: Service, request: pytest.FixtureRequest) -> Iterator[Sdk]:
    """It has logged in as an admin, by a secret."""
    secret = token(service, "ops", Role.ADMIN).secret.text
    env = environment(service.arm.url, service.arm.ca, secret, identity=False)
    sdk = Sdk(env, old=request.param == "old")
    yield sdk
    sdk.close()


def ids(*numbers: str) -> dict[str, Any]:
    return {"model": "VirtualMachineScaleSetVMInstanceRequiredIDs", "instance_ids": numbers}


def test_machines_are_listed_maintained_and_restarted(service: Service, sdk: Sdk) -> None:
    assert names(sdk.call("virtual_machines.list", GROUP)) == ["jumpbox", "sql-0", "sql-1"]
    assert names(sdk.call("virtual_machines.list_all")) == ["jumpbox", "sql-0", "sql-1"]

    guest = service["sql-0"]
    restart = sdk.call("virtual_machines.begin_restart", GROUP, "sql-0")
    [event] = guest.document()["Events"]
    assert (event["EventType"], event["Resources"]) == ("Reboot", ["sql-0"])
    guest.approve(event["EventId"])
    service.clock.advance("1h")
    assert guest.document()["Events"] == []
    assert sdk.wait(restart) == {"result": None}

    redeploy = sdk.call("virtual_machines.begin_redeploy", GROUP, "sql-1")
    [event] = service["sql-1"].document()["Events"]
    assert event["EventType"] == "Redeploy"
    service.clock.advance("1h")  # nobody approves it
    assert sdk.wait(redeploy) == {"result": None}

    sdk.call("virtual_machine_scale_set_vms.simulate_eviction", GROUP, "web", "2")
    assert service["web_2"].document()["Events"][0]["EventType"] == "Preempt"
    service.clock.advance("5m")
    assert not service["web_2"].alive

    deletion = sdk.call("virtual_machine_scale_sets.begin_delete_instances", GROUP, "web", ids("1"))
    assert service["web_1"].document()["Events"][0]["EventType"] == "Terminate"
    service.clock.advance("10m")
    assert sdk.wait(deletion) == {"result": None}
    assert not service["web_1"].alive

    gone = sdk.call("virtual_machines.begin_delete", GROUP, "jumpbox")
    service.clock.advance("10m")
    assert sdk.wait(gone) == {"result": None}
    assert "(ResourceNotFound)" in sdk.refusal("virtual_machines.get", GROUP, "jumpbox")
    assert "(OperationNotAllowed)" in sdk.refusal("virtual_machines.begin_start", GROUP, "sql-0")

    restart = sdk.call("virtual_machines.begin_restart", GROUP, "sql-0")
    service["sql-0"].events[0].cancel("not today")
    assert "not today" in sdk.wait(restart)["error"]


def test_the_resource_graph_is_queried(service: Service) -> None:
    sdk = Sdk(environment(service.arm.url, service.arm.ca, "any"))
    query: dict[str, Any] = {
        "model": "QueryRequest",
        "query": "Resources | where type =~ 'Microsoft.Compute/virtualMachines'"
        " | project name, properties.storageProfile.osDisk.osType | order by name asc",
        "options": {"model": "QueryRequestOptions", "top": 2},
    }
    page = sdk.call("resources", query, client="graph")
    assert (page["total_records"], page["count"], page["result_truncated"]) == (3, 2, "true")
    assert names(page["data"]) == ["jumpbox", "sql-0"]
    query["options"] = {"model": "QueryRequestOptions", "skip_token": page["skip_token"]}
    query["options"]["result_format"] = "table"
    page = sdk.call("resources", query, client="graph")
    assert page["data"]["rows"] == [["sql-1", "Linux"]]
    assert page["data"]["columns"][0] == {"name": "name", "type": "string"}
    query["query"] = "Resources | render piechart"
    assert "at character 13" in sdk.refusal("resources", query, client="graph")
    sdk.close()


def test_roles_and_limits_of_tokens_apply(service: Service) -> None:
    token(service, "ops", Role.ADMIN)
    secret = token(service, "team", Role.TENANT, groups=("sql",)).secret.text
    sdk = Sdk(environment(service.arm.url, service.arm.ca, secret))
    assert names(sdk.call("virtual_machines.list", GROUP)) == ["sql-0", "sql-1"]
    assert "(ResourceNotFound)" in sdk.refusal("virtual_machines.get", GROUP, "jumpbox")
    assert "(AuthorizationFailed)" in sdk.refusal("virtual_machines.begin_delete", GROUP, "sql-0")
    assert service.events == []
    sdk.call("virtual_machines.begin_restart", GROUP, "sql-0")
    session = service._session
    session.run(session.node.tokens.revoke("team", "ops"))
    refused = sdk.refusal("virtual_machines.begin_restart", GROUP, "sql-1")
    assert "(InvalidAuthenticationToken)" in refused
    sdk.close()


def test_a_service_that_was_killed_goes_on_with_what_was_accepted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("127.0.0.1")
    settings = write_settings(
        tmp_path,
        'arm = "127.0.0.1:0"\n'
        f'tls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
        'driver = "command"\n[command]\nprogram = ["true"]\n',
    )
    with running_service(tmp_path, settings) as service:
        sdk = Sdk(environment(service.arm, authority.path, "any"))
        service.poll()
        restart = sdk.call("virtual_machines.begin_restart", GROUP, "web-0")
        [event] = service.poll()["Events"]
        service.running.process.kill()
        service.running.wait()
        again = settings.read_text().replace('arm = "127.0.0.1:0"', f'arm = "{service.arm[8:]}"')
        settings.write_text(again)
    with running_service(tmp_path, settings) as service:
        assert service.poll()["Events"] == [event]
        approval = {"StartRequests": [{"EventId": event["EventId"]}]}
        url = f"{service.metadata}/metadata/scheduledevents?api-version=2020-07-01"
        body, headers = json.dumps(approval).encode(), {"Metadata": "true"}
        urllib.request.urlopen(urllib.request.Request(url, body, headers)).close()
        assert sdk.wait(restart) == {"result": None}
        sdk.close()
