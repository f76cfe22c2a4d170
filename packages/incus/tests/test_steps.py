"""What is asked of a server in states that a real one is in for a moment only."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from forewarn.drivers.port import Done, DriverContext, Performed, Running
from forewarn.testing.drivers import task
from forewarn_incus.api import BEGUN, NOTE, OVER, Incus, Note
from forewarn_incus.driver import IncusDriver
from forewarn_incus.options import IncusOptions

NAME = "web-0"  # of the instance of machine web_0
RUNNING = 103  # of an operation


class StartingIncus(Incus):
    """Has an instance that runs, while the operation that has started it is not over."""

    def __init__(self, options: IncusOptions, note: Note) -> None:
        super().__init__(options)
        self.config = {NOTE: msgspec.json.encode(note).decode()}
        self.starting = True

    @property
    def note(self) -> Note:
        return msgspec.json.decode(self.config[NOTE], type=Note)

    async def _send(self, method: str, path: str, body: Any = None, **_: Any) -> dict[str, Any]:
        match method, path:
            case "GET", "/operations?recursion=1":
                paths = {"instances": [f"/1.0/instances/{NAME}"]}
                start = {"id": "1", "status_code": RUNNING, "resources": paths}
                return {"type": "sync", "metadata": {"running": [start] if self.starting else []}}
            case "GET", "/instances/web-0":
                instance = {"name": NAME, "status": "Running", "last_used_at": "later"}
                return {"type": "sync", "metadata": instance | {"expanded_config": self.config}}
            case "PATCH", "/instances/web-0" if self.starting:
                return {"type": "error", "error": "the instance is busy running a start operation"}
            case "PATCH", "/instances/web-0":
                self.config |= body["config"]
                return {"type": "sync"}
        raise LookupError(f"{method} {path}")


def test_a_start_that_is_under_way_is_waited_for_before_the_note_is_finished() -> None:
    """The driver that has asked for it was killed."""
    reboot = task()
    options = IncusOptions(url="unix:///nowhere")
    incus = StartingIncus(options, Note(event=reboot.event, stage=BEGUN, started="before"))

    def perform() -> Performed:
        driver = IncusDriver(options, DriverContext())
        driver._incus = incus
        return asyncio.run(driver.perform(reboot))

    assert isinstance(perform(), Running)
    assert incus.note.stage == BEGUN
    incus.starting = False
    assert isinstance(perform(), Done)
    assert incus.note.stage == OVER
