"""docs/operate/nodes.md: its commands make certificates with which its settings work."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import urllib.request
from pathlib import Path

import msgspec

from forewarn.node import Node
from forewarn.node.config import Address
from forewarn.node.host_node import HostNode
from forewarn.node.settings import load
from forewarn.node.settings.host_node import load_node
from helpers.host_nodes import until
from helpers.paths import ROOT

PAGE = (ROOT / "docs/operate/nodes.md").read_text()
HERE = {"192.0.2.11": "127.0.0.1", "10.0.0.10": "127.0.0.1"}  # what the page has, and what is here
COMMANDS = (
    "authority",
    "control-request",
    "control-certificate",
    "node-request",
    "node-certificate",
)
ANY_PORT = Address("127.0.0.1", 0)


def block(kind: str, room: Path) -> str:
    """Return the block of the page with these words after its fence, for this machine."""
    (found,) = re.findall(rf"^```{re.escape(kind)}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    for shown, here in {**HERE, "/etc/forewarn": str(room)}.items():
        found = found.replace(shown, here)
    return str(found)


def test_a_guest_is_answered_by_a_node_that_was_set_up_as_the_page_says(tmp_path: Path) -> None:
    for kind in ("authority", "control-request", "control-certificate", "node-request"):
        subprocess.run(["bash", "-ec", block(f"sh {kind}", tmp_path)], cwd=tmp_path, check=True)
    subprocess.run(
        ["bash", "-ec", block("sh node-certificate", tmp_path)], cwd=tmp_path, check=True
    )
    (tmp_path / "host-a.pem").rename(tmp_path / "node.pem")
    (tmp_path / "fleet.yaml").write_text(block("yaml fleet", tmp_path))
    serve, own = tmp_path / "forewarn.toml", tmp_path / "node.toml"
    serve.write_text('fleet = "fleet.yaml"\nstate = "state.db"\n' + block("toml control", tmp_path))
    own.write_text(f'{block("toml node", tmp_path)}journal = "{tmp_path}/journal"\n')
    asyncio.run(poll_through_a_node(serve, own))


async def poll_through_a_node(serve: Path, own: Path) -> None:
    flags = {"control": "127.0.0.1:0"}
    _, config = load(serve, {}, flags)
    assert config.nodes is not None
    lines = msgspec.structs.replace(config.nodes, address=ANY_PORT)
    async with Node(msgspec.structs.replace(config, nodes=lines)) as control:
        node_config = load_node(own, {}, {"metadata": ["127.0.0.1:0"]}).config
        assert control.nodes_address is not None
        node_config = msgspec.structs.replace(
            node_config, control=(control.nodes_address,), status=ANY_PORT
        )
        async with HostNode(node_config) as node:
            await until(node.serving.is_set)
            url = f"{node.metadata_urls[0]}/metadata/scheduledevents?api-version=2020-07-01"
            request = urllib.request.Request(url, headers={"Metadata": "true"})
            answer = await asyncio.to_thread(lambda: urllib.request.urlopen(request).read())
            assert json.loads(answer) == {"DocumentIncarnation": 1, "Events": []}
            machines = await asyncio.to_thread(
                lambda: urllib.request.urlopen(f"{node.status_url}/machines").read()
            )
            (shown,) = re.findall(r"^\[\{.*web-0.*\}\]$", PAGE, re.MULTILINE)
            assert machines.decode() == shown.replace("10.0.0.10", "127.0.0.1")
