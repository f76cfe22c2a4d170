"""The main program of the supervisor: runs the control process and the workers, and represents the
service as a whole: prints `ready`, writes the note for `discovery`, and notifies systemd.

It imports as little as possible, to need little memory and few reasons to fail.
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
from forewarn.node.processes.supervisor import CHECK_EVERY, Supervisor
from forewarn.service.telemetry import log as service_log
from forewarn.support.logs import logger
from forewarn.support.sd_notify import MESSAGES_PER_PERIOD, Notifier

log = logger("forewarn")


def main() -> None:
    with os.fdopen(0, "rb", closefd=False) as stdin:
        spec = json.loads(stdin.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    service_log.configure(spec["settings"]["log"], spec["settings"]["log_level"])
    notifier = Notifier.from_environment(os.environ, log.write)
    children = make_children(spec)
    last_status = ""  # that the service manager was sent

    def status() -> str:
        count = spec["workers"]
        return f"{count} worker{'' if count == 1 else 's'}; {children[0].status}"

    with contextlib.ExitStack() as stack:

        def on_ready(urls: dict[str, Any]) -> None:
            stack.enter_context(note(urls.get("metadata", ""), urls.get("control", "")))
            sys.stdout.write(f"ready {json.dumps(urls, separators=(',', ':'))}\n")
            sys.stdout.flush()
            notifier.ready(status())

        def on_alive() -> None:
            nonlocal last_status
            notifier.alive()
            if children[0].status and last_status != status():
                last_status = status()
                notifier.status(last_status)

        watchdog_every = (
            notifier.watchdog / MESSAGES_PER_PERIOD if notifier.watchdog else CHECK_EVERY
        )
        listeners = [*chain(*spec["metadata_fds"]), spec["control_fd"]]
        supervisor = Supervisor(
            *(children, listeners, log.error, on_ready),
            on_alive=on_alive,
            on_reloading=notifier.reloading,
            on_reloaded=lambda: notifier.ready(status()),
            on_stopping=notifier.stopping,
            other_version=other_installed_version,
            outlived=spec["outlived"],
            check_every=min(CHECK_EVERY, watchdog_every),
        )
        exit_status = supervisor.run()
    sys.exit(exit_status)


def make_children(spec: dict[str, Any]) -> list[Child]:
    """Return the control process, which is the first, and the workers."""
    keys = ("metadata", "control", "settings", "config", "flags", "migrate", "speed")
    common = {key: spec[key] for key in keys}
    control = {**common, "control_fd": spec["control_fd"]}
    children = [Child(CONTROL, control, [spec["control_fd"]])]
    for number, fds in enumerate(spec["metadata_fds"]):
        worker = {**common, "number": number, "metadata_fds": fds}
        children.append(Child(f"worker {number}", worker, fds))
    return children


def other_installed_version() -> str:
    """Return the version of forewarn that is installed now, if it is not the running one, or ""."""
    try:
        text = Path(forewarn.__file__).read_text()
    except OSError:  # being replaced or removed; starting a process will report it
        return ""
    version = re.search(r'^__version__ = "(.+)"', text, re.MULTILINE)
    return version[1] if version and version[1] != forewarn.__version__ else ""


if __name__ == "__main__":
    main()
