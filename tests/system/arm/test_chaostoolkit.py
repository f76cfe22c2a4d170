"""chaostoolkit-azure, unmodified, which has the public cloud built in: it restarts machines that a
query finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from forewarn.control.views.azure import DEFAULT_SUBSCRIPTION
from forewarn.testing import Service
from helpers.azure_tools import OLD, PYTHON
from helpers.netns import needs_root
from helpers.process import Running

FLEET = """
groups:
  - {name: web, kind: scale-set, machines: [{name: web_0}, {name: web_1}]}
  - {name: jump, kind: standalone, machines: [{name: jumpbox}]}
  - {name: other, kind: standalone, machines: [{name: other-0}]}
"""
EXPERIMENT = """
import json, sys
from chaoslib.experiment import ensure_experiment_is_valid, run_experiment
experiment = json.loads(sys.argv[1])
ensure_experiment_is_valid(experiment)
journal = run_experiment(experiment)
print(json.dumps([[run["status"], run["output"]] for run in journal["run"]], default=str))
"""


def activity(kind: str, function: str, **arguments: Any) -> dict[str, Any]:
    module, _, name = function.rpartition(".")
    provider = {"type": "python", "module": f"chaosazure.{module}", "func": name}
    return {"type": kind, "name": name, "provider": {**provider, "arguments": arguments}}


def test_an_experiment_restarts_machines_that_a_query_finds() -> None:
    needs_root()
    jumpbox, scale_set = "where name == 'jumpbox'", "where name == 'web' | take 1"
    experiment = {
        "title": "Maintenance",
        "description": "Is it announced?",
        "configuration": {"azure_subscription_id": DEFAULT_SUBSCRIPTION},
        "method": [
            activity("probe", "machine.probes.count_machines", filter="where location == 'local'"),
            activity("action", "machine.actions.restart_machines", filter=jumpbox),
            activity(
                *("action", "vmss.actions.restart_vmss"),
                filter=scale_set,
                instance_criteria=[{"instance_id": "1"}],
            ),
        ],
    }
    with Service(FLEET, arm=True, sockets=True) as service:
        for machine in service.machines:
            machine.get()
        run = [sys.executable, "-P", "-m", "forewarn", "run", "--arm", "--machine", "jumpbox"]
        argv = [*run, "--network", "none", "--", str(PYTHON), "-c", EXPERIMENT]
        process = subprocess.Popen(
            [*argv, json.dumps(experiment)],
            env={
                **os.environ,
                "FOREWARN_URL": service.control_url,
                "PYTHONPATH": str(OLD),  # for chaosazure.vmss, which fails with the current one
                "AZURE_TENANT_ID": "forewarn",
                "AZURE_CLIENT_ID": "chaos",
                "AZURE_CLIENT_SECRET": "any",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running = Running(process, argv)
        try:
            assert running.wait() == 0, running.failure("failed")
        finally:
            running.stop()
        counted, machines, members = json.loads(running.stdout[-1])
        assert counted == ["succeeded", 2]
        assert (machines[0], members[0]) == ("succeeded", "succeeded")
        [event] = service["jumpbox"].document()["Events"]
        assert (event["EventType"], event["Resources"]) == ("Reboot", ["jumpbox"])
        [event] = service["web_0"].document()["Events"]
        assert (event["EventType"], event["Resources"]) == ("Reboot", ["web_1"])
        assert service["other-0"].document()["Events"] == []
