"""An operator's program for the drivers' suite: pretends like the simulated driver, in a file.

A program of its own: it imports nothing of ours, and is run with the file as its argument.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

LASTS = {"Freeze": 300, "Reboot": 600, "Redeploy": 600, "Preempt": 30, "Terminate": 30}


def main() -> int:
    file, verb = Path(sys.argv[1]), sys.argv[2]
    task = json.load(sys.stdin)
    if verb == "check":
        sys.stdout.write("none of its machines exists\n")
        return 0 if task["machines"] else 20
    struck = file.read_text().splitlines() if file.exists() else []
    happened = task["event"] in struck
    since = datetime.fromisoformat(task["now"]) - datetime.fromisoformat(task["started_at"])
    left = LASTS[task["type"]] - since.total_seconds()
    if verb == "perform" and not happened:
        with file.open("a") as open_file:
            open_file.write(f"{task['event']}\n")
        happened = True
    if not happened or left > 0:
        sys.stdout.write(json.dumps({"after": f"{left:g}s"}))
        return 10
    moved = {}
    if task["type"] == "Redeploy":
        for machine in task["machines"]:
            moved[machine["name"]] = machine["target"]
    sys.stdout.write(json.dumps({"moved": moved}))
    return 30 if verb == "observe" else 0


if __name__ == "__main__":
    sys.exit(main())
