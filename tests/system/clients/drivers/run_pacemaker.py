"""Runs Pacemaker's agents for Azure once, unmodified: `azure-events-az` or `azure-events`.

The agents come with the package resource-agents of the usual distributions. The cluster around
them is played by crm_tools.py: guests that are given the same STATE directory form one cluster,
and a guest's host name is its node name. Pacemaker calls an agent every ten seconds; here each
run of the driver is one such call.

    run_pacemaker.py OCF_ROOT AGENT STATE NODE [NODE …]
    {"status": 0, "log": ["…"], "node": {"azName": "…", "azure-events-az_curNodeState": "…"}}
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from crm_tools import TOOLS, attributes
from tell import tell


def main(ocf_root: Path, agent: str, state: Path, nodes: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        tools = Path(directory)
        for tool in TOOLS:
            command = f'exec "{sys.executable}" "{Path(__file__).with_name("crm_tools.py")}" {tool}'
            (tools / tool).write_text(f'#!/bin/sh\n{command} "$@"\n')
            (tools / tool).chmod(0o755)
        log = tools / "log"
        done = subprocess.run(
            [sys.executable, ocf_root / "resource.d/heartbeat" / agent, "monitor"],
            env={
                **os.environ,
                "PATH": f"{tools}:{os.environ['PATH']}",
                "OCF_ROOT": str(ocf_root),
                "OCF_RESOURCE_INSTANCE": agent,
                "HA_LOGFILE": str(log),
                "HA_debug": "1",
                "CRM_STATE": str(state),
                "CRM_NODES": " ".join(nodes),
            },
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        output = log.read_text() if log.exists() else ""
        tell(
            status=done.returncode,
            log=[*output.splitlines(), *done.stderr.splitlines()],
            node=attributes(state, socket.gethostname()),
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
