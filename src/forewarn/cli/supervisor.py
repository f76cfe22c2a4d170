"""The supervisor's process: reads what it is to do, keeps the others running, and speaks for all
of them: the line that says ready, the note by which commands find the service, the manager's
socket. Imports next to nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

import structlog

from forewarn.cli.running import note
from forewarn.node.child import CONTROL, Child
from forewarn.node.notifying import WATCH_SHARE, Notifier
from forewarn.node.supervisor import LOOK_EVERY, Supervisor
from forewarn.service import narrating

log = structlog.get_logger("forewarn")


def main() -> None:
    with os.fdopen(0, "rb", closefd=False) as told:
        spec = json.loads(told.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    narrating.configure(spec["settings"]["log"], spec["settings"]["log_level"])
    notifier = Notifier.taken_from(os.environ)
    status = (
        f"{spec['workers']} workers; guests at {spec['metadata']}, operators at {spec['control']}"
    )
    with contextlib.ExitStack() as stack:

        def ready(said: dict[str, Any]) -> None:
            stack.enter_context(note(said.get("metadata", ""), said.get("control", "")))
            sys.stdout.write(f"ready {json.dumps(said, separators=(',', ':'))}\n")
            sys.stdout.flush()
            notifier.ready(status)

        def reloading() -> None:
            notifier.reloading()  # each says for itself what came of it
            notifier.ready(status)

        every = notifier.watchdog / WATCH_SHARE if notifier.watchdog else LOOK_EVERY
        listeners = [*spec["metadata_fds"], spec["control_fd"]]
        supervisor = Supervisor(
            *(children(spec), listeners, log.error, ready),
            alive=notifier.alive,
            reloading=reloading,
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
    for number, fd in enumerate(spec["metadata_fds"]):
        own = {**said, "number": number, "metadata_fd": fd}
        made.append(Child(f"worker {number}", own, [fd]))
    return made


if __name__ == "__main__":
    main()
