"""A new operation of the control API with its command: an entry in the table, and a handler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from helpers.paths import ROOT

ENTRY = """
TOUCH_HOST = Operation(
    "POST /v1/hosts/{name}/touch",
    "Touch a host",
    s.Outcomes,
    takes=s.CordonRequest,
    command="host touch host-a",
    help="Touch a host, and say why.",
    done="host '{0}' was touched",
)
"""
HANDLER = '''

@route(operations.TOUCH_HOST)
async def touch_host(call: Call, name: Name, data: JSONBody[s.CordonRequest]) -> s.Outcomes:
    """Changes nothing else."""
    return core.outcomes(unwrap(await call.hosts.cordon(name, call.by, note=data.note)))
'''
USED = """
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.control.client.client import ControlClient
from forewarn.control.operations.hosts import TOUCH_HOST
from forewarn.testing import SAMPLE, Service

with Service(SAMPLE, sockets=True) as service:
    def typed(*words):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        return done.stdout

    client = ControlClient(service.control_url)
    assert "touch" in typed("host", "--help")
    assert "--note" in typed("host", "touch", "--help")
    url = ("--url", service.control_url)
    printed = typed("host", "touch", "host-a", "--note", "fans", *url)
    assert printed == "host 'host-a' was touched\\n"
    assert client.host("host-a").cordon_note == "fans"
    client.call(TOUCH_HOST, "host-b", {"note": "disk"})
    assert client.host("host-b").cordon_note == "disk"
    document = client.call(type(TOUCH_HOST)("GET /schema/openapi.json", "", dict))
    described = document["paths"]["/v1/hosts/{name}/touch"]["post"]
    assert described["operationId"] == "touchHost"
    assert described["x-command"] == "forewarn host touch host-a"
    assert described["description"] == "Changes nothing else."
    assert "touchHost" in client.call(type(TOUCH_HOST)("GET /v1/session", "", dict))["operations"]
"""


def test_a_new_route_with_its_command_needs_two_files(tmp_path: Path) -> None:
    package, shipped = tmp_path / "forewarn", ROOT / "src/forewarn"
    package.mkdir()
    for path in shipped.iterdir():
        (package / path.name).symlink_to(path)
    (package / "control").unlink()
    shutil.copytree(shipped / "control", package / "control")
    for file, text in (("operations/hosts.py", ENTRY), ("routes/hosts.py", HANDLER)):
        with (package / "control" / file).open("a") as source:
            source.write(text)
    used = subprocess.run(
        [sys.executable, "-c", USED],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert used.returncode == 0, used.stderr
