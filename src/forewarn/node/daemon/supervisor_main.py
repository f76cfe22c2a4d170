"""The supervisor's process: reads what it is to do, keeps the others running, and speaks for all
of them: the line that says ready, the note by which commands find the service, the manager's
socket. Imports next to nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import forewarn
from forewarn.node.daemon.discovery import note
from forewarn.node.processes.child import CONTROL, Child
from forewarn.node.processes.supervisor import LOOK_EVERY, Supervisor
from forewarn.service.telemetry import log as narrating
from forewarn.support.logs import logger
from forewarn.support.sd_notify import WATCH_SHARE, Notifier

log = logger("forewarn")


def main() -> None:
    with os.fdopen(0, "rb", closefd=False) as told:
        spec = json.loads(told.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    narrating.configure(spec["settings"]["log"], spec["settings"]["log_level"])
    notifier = Notifier.from_environment(os.environ, log.write)
    processes = children(spec)
    last = ""  # what the manager was told of how things stand

    def status() -> str:
        """What control says, which knows most."""
        count = spec["workers"]
        return f"{count} worker{'' if count == 1 else 's'}; {processes[0].status}"

    with contextlib.ExitStack() as stack:

        def ready(said: dict[str, Any]) -> None:
            stack.enter_context(note(said.get("metadata", ""), said.get("control", "")))
            sys.stdout.write(f"ready {json.dumps(said, separators=(',', ':'))}\n")
            sys.stdout.flush()
            notifier.ready(status())

        def alive() -> None:
            nonlocal last
            notifier.alive()
            if processes[0].status and last != status():
                last = status()
                notifier.status(last)

        every = notifier.watchdog / WATCH_SHARE if notifier.watchdog else LOOK_EVERY
        listeners = [*chain(*spec["metadata_fds"]), spec["control_fd"]]
        supervisor = Supervisor(
            *(processes, listeners, log.error, ready),
            alive=alive,
            reloading=notifier.reloading,
            reloaded=lambda: notifier.ready(status()),
            installed=another_version,
            outlived=spec["outlived"],
            look_every=min(LOOK_EVERY, every),
            stopping=notifier.stopping,
        )
        ended = supervisor.run()
    sys.exit(ended)


def children(spec: dict[str, Any]) -> list[Child]:
    keys = ("metadata", "control", "settings", "config", "flags", "migrate", "speed")
    said = {key: spec[key] for key in keys}
    control = {**said, "control_fd": spec["control_fd"]}
    made = [Child(CONTROL, control, [spec["control_fd"]])]
    for number, fds in enumerate(spec["metadata_fds"]):
        own = {**said, "number": number, "metadata_fds": fds}
        made.append(Child(f"worker {number}", own, fds))
    return made


def another_version() -> str:
    """Which one is installed by now, if it is not the one that runs. Nothing is imported: what
    runs stays what it is."""
    try:
        text = Path(forewarn.__file__).read_text()
    except OSError:  # just being replaced, or gone; then a start will say so
        return ""
    found = re.search(r'^__version__ = "(.+)"', text, re.MULTILINE)
    return found[1] if found and found[1] != forewarn.__version__ else ""


if __name__ == "__main__":
    main()
