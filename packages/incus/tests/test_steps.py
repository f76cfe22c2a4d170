"""What is asked of a server in states that a real one is in for a moment only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from forewarn.core import EventType
from forewarn.drivers.port import (
    Done,
    DriverContext,
    Failed,
    Later,
    MachineState,
    NotYet,
    Performed,
    Running,
    Seen,
    Unknown,
)
from forewarn.testing.drivers import task
from forewarn_incus.api import BEGUN, NOTE, OVER, Incus, Instance, Note, State
from forewarn_incus.driver import IncusDriver
from forewarn_incus.options import IncusOptions
from forewarn_incus.watch import seen

NAME = "web-0"  # of the instance of machine web_0
TEMPORARY = "lxd-move-of-77fd783f-cac9-4f99-8304-9839d288273f"
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


class MovingIncus(Incus):
    """A cluster in which an instance has these names, one after the other; empty: none. With each
    request for the instance the next one begins."""

    def __init__(self, options: IncusOptions, names: list[str], *, moves: bool) -> None:
        super().__init__(options)
        self.names = names
        self.name = names[0]
        self.moves = moves

    async def _send(self, method: str, path: str, *_: Any, **__: Any) -> dict[str, Any]:
        match method, path:
            case "GET", "/operations?recursion=1":
                return _sync({"running": self._operations(), "success": [_operation(NAME, 200)]})
            case "GET", "/instances/web-0":
                self.name = self.names.pop(0) if len(self.names) > 1 else self.names[0]
                if self.name == NAME:
                    return _sync(self._instance())
                return {"type": "error", "error_code": 404, "error": "Instance not found"}
            case "GET", "/instances?recursion=2":
                return _sync([self._instance()] if self.name else [])
        raise LookupError(f"{method} {path}")

    def _operations(self) -> list[Mapping[str, object]]:
        joining = {"id": "2", "status_code": RUNNING, "resources": {"cluster": None}}
        shell = _operation(NAME, RUNNING) | {"description": "Executing command"}
        return [joining, shell, *([_operation(f"{NAME}?project=p", RUNNING)] if self.moves else [])]

    def _instance(self) -> Mapping[str, object]:
        config = {"volatile.uuid": TEMPORARY.removeprefix("lxd-move-of-")}
        return {
            "name": self.name,
            "status": "Stopped",
            "location": "b",
            "expanded_config": config,
        }


def _sync(metadata: object) -> dict[str, Any]:
    return {"type": "sync", "metadata": metadata}


def _operation(name: str, status: int) -> dict[str, object]:
    paths = {"instances": [f"/1.0/instances/{name}"]}
    return {"id": "1", "status_code": status, "description": "Migrating", "resources": paths}


@pytest.mark.parametrize(
    ("names", "moves", "observed", "performed", "evicted"),
    [
        ([TEMPORARY], True, Later, Running, Running),
        ([""], True, Later, Running, Running),
        ([NAME], True, NotYet, Running, Running),
        (["", NAME], False, NotYet, None, None),
        ([TEMPORARY], False, Unknown, Unknown, Unknown),
        ([""], False, Unknown, Failed, Done),
    ],
    ids=["copied", "between", "begun", "over", "broken off", "gone"],
)
def test_an_instance_is_not_gone_while_it_is_moved(
    names: list[str], moves: bool, observed: type, performed: type | None, evicted: type | None
) -> None:
    """A server copies it to a temporary name, deletes it, and renames the copy."""
    options = IncusOptions(url="unix:///nowhere")
    redeploy, preempt = task(EventType.REDEPLOY), task(EventType.PREEMPT)

    def driver() -> IncusDriver:
        driver = IncusDriver(options, DriverContext())
        driver._incus = MovingIncus(options, list(names), moves=moves)
        return driver

    assert type(asyncio.run(driver().observe(redeploy))) is observed
    if performed is not None:
        assert type(asyncio.run(driver().perform(redeploy))) is performed
    if evicted is not None:
        assert type(asyncio.run(driver().perform(preempt))) is evicted


class ListedIncus(Incus):
    """A cluster whose instance has one of these names in each enumeration; empty: none. It exists
    with its own name as long as it is in a later one."""

    def __init__(self, options: IncusOptions, names: list[str]) -> None:
        super().__init__(options)
        self._names = names

    async def members(self) -> set[str]:
        return {"b"}

    async def instances(self) -> list[Instance]:
        if not self._names:
            raise Enumerated
        name = self._names.pop(0)
        config = {"volatile.uuid": "77fd783f"}
        instance = Instance(name, "Running", "b", expanded_config=config)
        return [instance] if name else []

    async def instance(self, machine: str) -> Instance | None:
        return Instance(machine, "Running") if machine in self._names else None


class Enumerated(Exception):
    """There are no more enumerations."""


def test_an_enumeration_without_an_instance_that_is_moved_is_not_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn_incus.driver.ENUMERATE", 0.0)
    options = IncusOptions(url="unix:///nowhere")
    driver = IncusDriver(options, DriverContext())
    driver._incus = ListedIncus(options, [TEMPORARY, NAME, "", TEMPORARY, "", NAME, ""])
    reports: list[Seen] = []
    with pytest.raises(Enumerated):
        asyncio.run(driver.watch(reports.append))
    assert [([machine.name for machine in one.machines], one.whole) for one in reports] == [
        ([], False),
        ([NAME], True),
        ([], False),
        ([], False),
        ([], False),
        ([NAME], True),
        ([], True),
    ]


def test_only_what_its_member_says_of_an_instance_is_reported() -> None:
    """One that does not answer in time leaves nothing but a name and an error."""
    none = State()
    instances = [
        Instance(name="web-0", status="Error", location="a"),
        Instance(name="web-1", status="Error", location="b", state=none),
        Instance(name="web-2", status="Stopping", location="b", state=none),
    ]
    of_a, of_b = seen(instances, {"a", "b"}, "", whole=True)
    assert (of_a.machines, of_a.whole) == ((), False)
    assert [one.state for one in of_b.machines] == [MachineState.CRASHED, MachineState.RUNNING]
    assert of_b.whole
