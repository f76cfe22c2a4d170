"""A stand-in for the four Pacemaker commands that the Azure agents call.

It keeps a cluster's attributes as files, one directory per node, in $CRM_STATE; the nodes are
$CRM_NODES. No node ever has a resource left to stop, so an agent may approve as soon as it has put
its node on standby. It knows nothing of events.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

TOOLS = ("crm_attribute", "crm_node", "crm_resource", "crm_simulate")
CLUSTER_WIDE = "crm_config"


def attributes(state: Path, node: str) -> dict[str, str]:
    directory = state / node
    return {p.name: p.read_text() for p in directory.iterdir()} if directory.exists() else {}


def crm_attribute(state: Path, argv: list[str]) -> str:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--name", "-n", required=True)
    parser.add_argument("--node", "-N", default=CLUSTER_WIDE)
    parser.add_argument("--update", "-v")
    parser.add_argument("--default", default="")
    parser.add_argument("--delete", action="store_true")
    for ignored in ("--type", "-t", "--lifetime"):
        parser.add_argument(ignored)
    for ignored in ("--query", "--quiet"):
        parser.add_argument(ignored, action="store_true")
    asked = parser.parse_args(argv)
    attribute = state / asked.node / asked.name
    if asked.delete:
        attribute.unlink(missing_ok=True)
    elif asked.update is not None:
        attribute.parent.mkdir(parents=True, exist_ok=True)
        attribute.write_text(asked.update)
    else:
        return str(attribute.read_text() if attribute.exists() else asked.default)
    return ""


def main(tool: str, argv: list[str]) -> str:
    if tool == "crm_attribute":
        return crm_attribute(Path(os.environ["CRM_STATE"]), argv)
    if tool == "crm_node":
        nodes = os.environ["CRM_NODES"].split()
        return "\n".join(f"{number} {node} member" for number, node in enumerate(nodes, 1))
    return "Transition Summary:" if tool == "crm_simulate" else ""


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1], sys.argv[2:]))
