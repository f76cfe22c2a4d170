"""What every driver promises, and what libvirt's has to find out, on libvirt's own test driver: its
domains are pretended, but everything that is asked of them goes through libvirt."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import libvirt
import msgspec
import pytest

from forewarn.core import EventType
from forewarn.core.time import SECOND
from forewarn.drivers.port import (
    Done,
    Driver,
    DriverContext,
    Failed,
    Happened,
    Later,
    NotYet,
    Observed,
    Part,
    Performed,
    Running,
    Task,
    Unknown,
    Veto,
)
from forewarn.testing.drivers import DriverContract, DriverPlace, task
from forewarn_libvirt import events
from forewarn_libvirt.checks import why_not
from forewarn_libvirt.definitions import Definitions
from forewarn_libvirt.driver import LibvirtDriver
from forewarn_libvirt.hosts import Domain
from forewarn_libvirt.notes import INACTIVE, LIVE, OVER, Note, read
from forewarn_libvirt.options import LibvirtOptions
from helpers.waiting import LIMIT

NODE = "<node><cpu><mhz>6000</mhz></cpu><memory>1048576</memory></node>"
DOMAIN = """
<domain type='test'><name>web_0</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type>hvm</type></os><devices>{devices}</devices></domain>
"""
IMPACTS = (libvirt.VIR_DOMAIN_EVENT_SUSPENDED, libvirt.VIR_DOMAIN_EVENT_STOPPED)


class Place(DriverPlace):
    """Two hosts, each with a libvirt of its own, which outlive the drivers."""

    def __init__(self, directory: Path, **options: Any) -> None:
        events.run()
        self.connections: dict[str, Any] = {}
        self.unreachable: set[str] = set()
        self._impacts = 0
        for host in ("a", "b"):
            file = directory / f"{host}.xml"
            file.write_text(NODE)
            self.connections[f"test://{file}"] = connection = libvirt.open(f"test://{file}")
            connection.domainEventRegisterAny(
                None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._happened, None
            )
        self.options = LibvirtOptions(uri=f"test://{directory}/{{host}}.xml", **options)
        self.define()

    def _happened(self, _c: Any, _d: Any, event: int, _detail: int, _o: object) -> None:
        self._impacts += event in IMPACTS

    def define(self, host: str = "a", devices: str = "") -> Domain:
        definition = DOMAIN.format(devices=devices)
        self.on(host).defineXML(definition).create()
        return self.domain(host)

    def on(self, host: str) -> Any:
        return self.connections[self.options.uri_of(host)]

    def domain(self, host: str = "a") -> Domain:
        return Domain(host, self.on(host).lookupByName("web_0"))

    def names(self, host: str) -> list[str]:
        return [domain.name() for domain in self.on(host).listAllDomains()]

    def driver(self, death: Death | None = None, hosts: tuple[str, ...] = ()) -> Driver:
        def open(uri: str) -> Any:
            if uri in self.unreachable:
                return libvirt.open("test+unix:///default?socket=/nowhere")
            return _Watched(self.connections[uri], death or Death())

        return LibvirtDriver(self.options, DriverContext(hosts=hosts), open)

    def impacts(self) -> int:
        """Count what libvirt has reported until now."""
        all_before = threading.Event()
        timer = libvirt.virEventAddTimeout(0, lambda *_: all_before.set(), None)
        assert all_before.wait(LIMIT)
        libvirt.virEventRemoveTimeout(timer)
        return self._impacts


class Killed(BaseException):
    """The process of a driver was killed."""


class Death:
    """When a driver is killed: before or after the call of libvirt with this number that changes
    something."""

    CHANGES = frozenset(
        {"suspend", "resume", "shutdown", "destroy", "create", "defineXML", "undefineFlags"}
        | {"setMetadata", "setAutostart"}
    )

    def __init__(self, number: int = -1, *, after: bool = False) -> None:
        self._left = number
        self._after = after

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*args: Any) -> Any:
            self._left -= 1
            if self._left == -1 and not self._after:
                raise Killed
            result = call(*args)
            if self._left == -1:
                raise Killed
            return result

        return changed if name in self.CHANGES else call


class _Watched:
    """A connection or a domain of libvirt, of which some call is the last."""

    def __init__(self, of: Any, death: Death) -> None:
        self._of = of
        self._death = death

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        if name == "close":  # the pretended hosts would be forgotten
            return lambda: None
        if name in ("lookupByName", "lookupByUUID", "defineXML"):
            return self._death.around(name, lambda *a: _Watched(value(*a), self._death))
        return self._death.around(name, value) if callable(value) else value


class TestContract(DriverContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> DriverPlace:
        return Place(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def observed(place: Place, task: Task) -> Observed:
    return asyncio.run(place.driver().observe(task))


def performed(place: Place, task: Task) -> Performed:
    return asyncio.run(place.driver().perform(task))


def vetoed(place: Place, task: Task) -> str:
    checked = asyncio.run(place.driver().check(task))
    return checked.why if isinstance(checked, Veto) else ""


def opened(place: Place, *hosts: str) -> str:
    """Return what keeps a driver from acting that was just opened."""

    async def problem() -> str:
        driver = place.driver(hosts=hosts)
        await driver.open()
        try:
            return driver.problem()
        finally:
            await driver.aclose()

    return asyncio.run(problem())


def later(task: Task, seconds: float, fence: int = 0) -> Task:
    now = task.now + round(seconds * SECOND)
    return msgspec.structs.replace(task, now=now, fence=fence or task.fence)


def with_machine(task: Task, **changes: Any) -> Task:
    [machine] = task.machines
    machine = msgspec.structs.replace(machine, **changes)
    return msgspec.structs.replace(task, machines=(machine,))


# What is done, and with which answers it ends.


def test_a_freeze_suspends_for_as_long_as_the_event_says(place: Place) -> None:
    freeze = msgspec.structs.replace(task(EventType.FREEZE), duration=9)
    assert performed(place, freeze) == Running(9 * SECOND, "web_0 is suspended")
    assert place.domain().paused
    assert isinstance(observed(place, later(freeze, 9)), NotYet)
    assert isinstance(performed(place, later(freeze, 8.5)), Running)
    assert performed(place, later(freeze, 9)) == Done(away={"web_0": 9})
    assert not place.domain().paused
    assert isinstance(observed(place, later(freeze, 9)), Happened)
    assert place.impacts() == 1


def test_what_somebody_else_has_suspended_is_not_resumed(place: Place) -> None:
    place.domain().handle.suspend()
    assert isinstance(performed(place, task(EventType.FREEZE)), Failed)
    assert place.domain().paused


def test_a_freeze_ends_where_somebody_else_has_resumed(place: Place) -> None:
    freeze = msgspec.structs.replace(task(EventType.FREEZE), duration=9)
    performed(place, freeze)
    place.domain().handle.resume()
    assert performed(place, later(freeze, 9)) == Done()
    assert place.impacts() == 1


def test_the_note_of_a_power_cycle_is_that_of_the_definition(place: Place) -> None:
    """So it says what has happened also where the number of a domain is used again."""
    before = place.domain().handle.ID()
    assert isinstance(performed(place, task()), Done)
    domain = place.domain()
    note = Note(task().event, 1, OVER, "b", task().now, before)
    assert (read(domain.handle, LIVE), read(domain.handle, INACTIVE)) == (note, note)
    assert domain.handle.ID() > before


def test_a_crashed_machine_is_started_and_one_that_was_shut_down_is_not(
    place: Place, tmp_path: Path
) -> None:
    place.domain().handle.shutdown()
    assert isinstance(performed(place, task()), Failed)
    assert not place.domain().active
    place.domain().handle.create()
    place.domain().handle.coreDump(str(tmp_path / "core"), libvirt.VIR_DUMP_CRASH)
    assert place.domain().reason == libvirt.VIR_DOMAIN_SHUTOFF_CRASHED
    assert isinstance(performed(place, later(task(), 1)), Done)
    assert place.domain().active


def test_a_redeploy_without_a_target_starts_the_machine_where_it_is(place: Place) -> None:
    redeploy = with_machine(task(EventType.REDEPLOY), target="")
    assert performed(place, redeploy) == Done({"web_0": "a"})
    assert place.impacts() == 1


def test_a_machine_that_cannot_be_defined_on_its_target_is_not_touched(place: Place) -> None:
    other = DOMAIN.format(devices="")
    place.on("b").defineXML(other)  # with another UUID
    failed = performed(place, task(EventType.REDEPLOY))
    assert isinstance(failed, Failed)
    assert failed.unsuitable == ("b",)
    assert place.impacts() == 0
    assert place.domain().active


@pytest.mark.parametrize("type", [EventType.PREEMPT, EventType.TERMINATE], ids=str)
def test_a_deleted_machine_is_defined_nowhere(place: Place, type: EventType) -> None:
    gone = with_machine(task(type), target="")
    assert isinstance(observed(place, gone), NotYet)
    assert isinstance(performed(place, gone), Done)
    assert place.names("a") == []
    assert isinstance(observed(place, gone), Happened)


def test_another_machine_of_that_name_is_found_by_its_uuid(place: Place) -> None:
    right = place.domain().handle.UUIDString()
    wrong = str(uuid.uuid4())
    renamed = DOMAIN.format(devices="").replace("web_0", "elsewhere-named")
    place.on("a").defineXML(renamed).create()
    by_uuid = with_machine(task(), name="anything", vm_id=right.upper())
    assert vetoed(place, by_uuid) == ""
    assert "no domain anything on a" in vetoed(place, with_machine(by_uuid, vm_id=wrong))


def test_each_machine_of_joint_events_has_the_note_of_its_own_event(place: Place) -> None:
    """Another event may lead the next time."""
    parts = (Part("ANOTHER", "db", ()), Part("ITS-OWN", "web", ("web_0",)))
    joint = msgspec.structs.replace(task(), parts=parts)
    assert isinstance(performed(place, joint), Done)
    assert isinstance(observed(place, msgspec.structs.replace(joint, event="ITS-OWN")), Happened)
    assert isinstance(performed(place, later(joint, 1, fence=2)), Done)
    assert place.impacts() == 1


# Killed at any point, and continued by another process.

COURSES = {
    "freeze": EventType.FREEZE,
    "reboot": EventType.REBOOT,
    "redeploy": EventType.REDEPLOY,
    "preempt": EventType.PREEMPT,
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("course", COURSES)
def test_a_driver_killed_at_any_call_disturbs_its_machine_once(
    tmp_path: Path, course: str, after: bool
) -> None:
    """And the next one carries out what is left."""
    deaths = 0
    for number in range(100):
        directory = tmp_path / str(number)
        directory.mkdir()
        place = Place(directory)
        current = task(COURSES[course])
        with contextlib.suppress(Killed):
            for _ in range(3):
                driver = place.driver(Death(number, after=after))
                answer = asyncio.run(driver.perform(current))
                current = later(current, 5)
            assert isinstance(answer, Done)
            break
        deaths += 1
        finish(place, later(current, 0, fence=2), course)
    assert deaths > 3


def finish(place: Place, current: Task, course: str) -> None:
    """Do what the service does after a crash."""
    while not isinstance(answer := observed(place, current), Happened):
        assert isinstance(answer, NotYet)
        answered = performed(place, current)
        assert isinstance(answered, Done | Running)
        current = later(current, 5)
    assert place.impacts() == 1
    running = [host for host in "ab" if "web_0" in place.names(host)]
    assert running == {"redeploy": ["b"], "preempt": []}.get(course, ["a"])
    for host in running:
        assert place.domain(host).active
        assert not place.domain(host).paused
    assert answer.moved == ({"web_0": "b"} if course == "redeploy" else {})


# What cannot be known, and what is refused.


def test_an_attempt_that_comes_late_is_refused(place: Place) -> None:
    assert isinstance(observed(place, later(task(), 0, fence=7)), NotYet)
    late = performed(place, later(task(), 0, fence=6))
    assert isinstance(late, Unknown)
    assert "one with 7 came before" in late.why
    assert place.impacts() == 0


def test_a_machine_that_runs_twice_is_left_to_somebody_who_looks(place: Place) -> None:
    place.on("b").defineXML(place.domain().definition()).create()
    redeploy = task(EventType.REDEPLOY)
    assert observed(place, redeploy) == Unknown("web_0 is running on a and b")
    assert isinstance(performed(place, redeploy), Unknown)
    assert place.impacts() == 0


def test_nothing_is_known_of_a_host_that_cannot_be_reached(place: Place) -> None:
    place.unreachable.add(place.options.uri_of("a"))
    assert isinstance(observed(place, task()), Later)
    assert isinstance(performed(place, task()), Unknown)
    assert "the libvirt of a cannot be reached" in vetoed(place, task())
    place.unreachable.clear()
    assert isinstance(performed(place, task()), Done)


def test_a_driver_of_which_no_host_can_be_reached_says_so(place: Place) -> None:
    place.unreachable.add(place.options.uri_of("a"))
    assert "the libvirt of a cannot be reached" in opened(place, "a")
    assert opened(place, "a", "b") == ""


def test_nothing_is_done_once_another_node_decides(place: Place) -> None:
    context = DriverContext(may_act=lambda: False)
    driver = LibvirtDriver(place.options, context, place.connections.__getitem__)
    assert isinstance(asyncio.run(driver.perform(task())), Failed)
    assert place.impacts() == 0


DISK = "<disk type='file' device='disk'><source file='{}'/><target dev='vda'/></disk>"
PASSED = """<hostdev mode='subsystem' type='usb'><source><vendor id='0x1234'/><product id='0xbeef'/>
</source></hostdev>"""


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ("", ""),
        (DISK.format("/srv/shared/web_0.img"), ""),
        (DISK.format("/var/lib/web_0.img"), "/var/lib/web_0.img is on no shared storage"),
        (PASSED, "it has a <hostdev> of that host"),
    ],
    ids=["nothing", "shared", "local", "device"],
)
@pytest.mark.parametrize("type", [EventType.FREEZE, EventType.REDEPLOY], ids=str)
def test_a_machine_that_cannot_leave_its_host_is_not_announced_to_do_so(
    tmp_path: Path, type: EventType, devices: str, why: str
) -> None:
    place = Place(tmp_path, shared=["/srv/shared"])
    place.domain().handle.destroy()
    place.domain().handle.undefine()
    place.define(devices=devices)
    moves = msgspec.structs.replace(task(type), moves=type is EventType.FREEZE)
    assert vetoed(place, moves) == (why and f"web_0 cannot leave a: {why}")
    assert vetoed(place, task()) == ""


KVM = """<domain type='kvm'><name>web_0</name><cpu mode='{}'><model>EPYC</model></cpu>
<devices/></domain>"""
HOST = "<capabilities><host><cpu><model>EPYC</model></cpu></host></capabilities>"


@pytest.mark.parametrize("mode", ["custom", "host-passthrough"])
@pytest.mark.parametrize(
    ("compared", "refused"),
    [
        (libvirt.VIR_CPU_COMPARE_INCOMPATIBLE, True),
        (libvirt.VIR_CPU_COMPARE_IDENTICAL, False),
        (libvirt.VIR_CPU_COMPARE_SUPERSET, False),
    ],
)
def test_a_machine_is_not_migrated_to_a_host_whose_cpu_lacks_something(
    mode: str, compared: int, refused: bool
) -> None:
    """The test driver of libvirt has no KVM, so this is what its domains would answer."""
    asked: list[str] = []

    def compare(cpu: str) -> int:
        asked.append(cpu)
        return compared

    source = SimpleNamespace(getCapabilities=lambda: HOST)
    target = SimpleNamespace(compareCPU=compare)
    handle = SimpleNamespace(
        state=lambda: (libvirt.VIR_DOMAIN_RUNNING, 0),
        isActive=lambda: 1,
        isPersistent=lambda: 1,
        XMLDesc=lambda _: KVM.format(mode),
        connect=lambda: source,
    )
    hosts: Any = SimpleNamespace(
        find=lambda host, *_: Domain(host, handle), connection=lambda _: target
    )
    moves = msgspec.structs.replace(task(EventType.FREEZE), moves=True)
    answer = why_not(moves, LibvirtOptions(uri="test:///default"), hosts, Definitions(None))
    assert isinstance(answer, Veto) == refused
    [cpu] = asked
    assert ElementTree.fromstring(cpu).findtext("model") == "EPYC"


def test_a_task_for_a_machine_without_a_host_or_a_domain_is_refused(place: Place) -> None:
    assert vetoed(place, with_machine(task(), name="web_9")) == "there is no domain web_9 on a"
    assert "which host web_0 is on" in vetoed(place, with_machine(task(), host="", target=""))
    nowhere = msgspec.structs.replace(with_machine(task(EventType.FREEZE), target=""), moves=True)
    assert vetoed(place, nowhere) == "there is no host that web_0 could move to"
    place.domain().handle.destroy()
    assert vetoed(place, task(EventType.FREEZE)) == "web_0 is not running on a"


# A host that has failed.


def test_a_machine_of_a_failed_host_is_started_from_what_was_kept(tmp_path: Path) -> None:
    place = Place(tmp_path, definitions=str(tmp_path / "kept"))
    assert vetoed(place, task()) == ""  # from then on it is kept
    identity = place.domain().handle.UUIDString()
    place.unreachable.add(place.options.uri_of("a"))
    failed = with_machine(task(EventType.REDEPLOY), host_failed=True)
    assert vetoed(place, failed) == ""
    assert isinstance(observed(place, failed), NotYet)
    assert performed(place, failed) == Done({"web_0": "b"})
    assert place.domain("b").handle.UUIDString() == identity
    assert observed(place, failed) == Happened({"web_0": "b"})
    kept = [str(file.relative_to(tmp_path)) for file in (tmp_path / "kept").rglob("*.xml")]
    assert kept == ["kept/b/web_0.xml"]


def test_where_definitions_cannot_be_kept_nothing_is_announced(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()  # a file is in the way, also of root

    place = Place(tmp_path, definitions=str(tmp_path / "kept"))
    assert f"definitions cannot be kept in {tmp_path}/kept" in vetoed(place, task())
    assert "definitions cannot be kept" in opened(place)
    assert isinstance(performed(place, task(EventType.REDEPLOY)), Done)  # what has been announced
    (tmp_path / "kept").unlink()
    assert opened(place) == ""
    assert vetoed(place, with_machine(task(), host="b", target="")) == ""


def test_without_definitions_the_failure_of_a_host_says_what_is_missing(place: Place) -> None:
    failed = with_machine(task(EventType.REDEPLOY), host_failed=True)
    assert "libvirt.definitions" in vetoed(place, failed)
    assert isinstance(performed(place, failed), Failed)


def test_definitions_are_for_their_owner_only(tmp_path: Path) -> None:
    place = Place(tmp_path, definitions=str(tmp_path / "kept"))
    vetoed(place, task())
    assert (tmp_path / "kept/a/web_0.xml").stat().st_mode & 0o777 == 0o600
