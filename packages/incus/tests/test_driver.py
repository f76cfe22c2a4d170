"""What every driver promises, and what happens to instances, on a cluster of two real servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

from forewarn.core import EventType
from forewarn.core.time import SECOND, Duration
from forewarn.drivers import registry
from forewarn.drivers.port import (
    Done,
    Driver,
    DriverContext,
    Failed,
    Happened,
    Later,
    MachineState,
    NotYet,
    Observed,
    Ok,
    Performed,
    Running,
    Seen,
    Task,
    Unknown,
    Veto,
)
from forewarn.support import guard
from forewarn.testing.drivers import DriverContract, DriverPlace, task
from forewarn_incus.api import Incus
from forewarn_incus.driver import IncusDriver
from forewarn_incus.options import IncusOptions
from helpers.lxd_cluster import Cluster, lxd_cluster
from helpers.waiting import until_async

NAME = "web-0"  # of the instance of machine web_0
LIVE = {"type": EventType.FREEZE, "moves": True}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lxd_cluster(tmp_path_factory.mktemp("lxd")) as cluster:
        yield cluster


class Killed(BaseException):
    """The process of the driver was killed."""


class Dying(Incus):
    """Is killed before or after the request with this number that changes something."""

    def __init__(self, options: IncusOptions, left: int, *, after: bool) -> None:
        super().__init__(options)
        self._left, self._after = left, after

    async def _send(self, method: str, path: str, *args: Any, **more: Any) -> dict[str, Any]:
        if method == "GET":
            return await super()._send(method, path, *args, **more)
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Killed
        answer = await super()._send(method, path, *args, **more)
        if self._left == 0:
            raise Killed
        return answer


class Place(DriverPlace):
    """An instance on member `a`."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        self.cluster = cluster
        self.options = IncusOptions(url=cluster.url(), **options)
        self.launch()

    def launch(self, *options: str) -> None:
        self.cluster.delete(NAME)
        self.cluster.launch(NAME, "a", *options)
        self._before = self.cluster.impacts(NAME)

    def driver(self, incus: Incus | None = None) -> Driver:
        driver = IncusDriver(self.options, DriverContext())
        if incus is not None:
            driver._incus = incus
        return driver

    def impacts(self) -> int:
        return self.cluster.impacts(NAME) - self._before


@pytest.fixture
def place(cluster: Cluster) -> Iterator[Place]:
    yield Place(cluster)
    cluster.delete(NAME)


class TestIncusDriver(DriverContract):
    pass


def asked(place: Place, method: str, task: Task) -> Any:
    """Return what a new driver answers."""

    async def ask() -> Any:
        driver = place.driver()
        try:
            return await getattr(driver, method)(task)
        finally:
            await driver.aclose()

    return asyncio.run(ask())


def check(place: Place, task: Task) -> Any:
    return asked(place, "check", task)


def observe(place: Place, task: Task) -> Observed:
    seen: Observed = asked(place, "observe", task)
    return seen


def perform(place: Place, task: Task) -> Performed:
    performed: Performed = asked(place, "perform", task)
    return performed


def later(task: Task, after: Duration = 0, **changed: Any) -> Task:
    number = task.attempt + 1
    return msgspec.structs.replace(
        task, now=task.now + after, attempt=number, fence=number, **changed
    )


def to(task: Task, target: str) -> Task:
    (machine,) = task.machines
    return msgspec.structs.replace(
        task, machines=(msgspec.structs.replace(machine, target=target),)
    )


def test_a_reboot_starts_the_instance_again(place: Place) -> None:
    done = perform(place, task())
    assert isinstance(done, Done)
    assert set(done.away) == {"web_0"}
    assert place.cluster.state(NAME) == ("RUNNING", "a")
    assert place.cluster.starts(NAME) == 2


def test_an_instance_that_does_not_run_is_started(place: Place) -> None:
    place.cluster.execute("lxc", "stop", "--force", NAME)
    assert isinstance(perform(place, task()), Done)
    assert place.cluster.starts(NAME) == 2


def test_an_instance_that_does_not_shut_down_is_stopped(place: Place) -> None:
    place.options = msgspec.structs.replace(place.options, shutdown="1s")
    place.cluster.execute("lxc", "exec", NAME, "--", "sh", "-c", "echo > /busy")
    assert isinstance(perform(place, task()), Done)
    assert place.cluster.starts(NAME) == 2


def test_a_frozen_instance_can_be_restarted(place: Place) -> None:
    place.cluster.execute("lxc", "pause", NAME)
    assert isinstance(perform(place, task()), Done)
    assert place.cluster.state(NAME) == ("RUNNING", "a")
    assert place.cluster.starts(NAME) == 2


def test_a_freeze_lasts_as_long_as_the_event_says(place: Place) -> None:
    freeze = msgspec.structs.replace(task(EventType.FREEZE), duration=9)
    assert check(place, freeze) == Ok()
    assert isinstance(begun := perform(place, freeze), Running)
    assert begun.after == 9 * SECOND
    assert place.cluster.state(NAME) == ("FROZEN", "a")
    assert observe(place, freeze) == NotYet()

    thawed = later(freeze, 9 * SECOND)
    assert perform(place, thawed) == Done(away={"web_0": 9.0})
    assert place.cluster.state(NAME) == ("RUNNING", "a")
    assert observe(place, thawed) == Happened()
    assert place.cluster.starts(NAME) == place.impacts() == 1


def test_a_redeploy_goes_to_its_target(place: Place) -> None:
    done = perform(place, task(EventType.REDEPLOY))
    assert isinstance(done, Done)
    assert done.moved == {"web_0": "b"}
    assert place.cluster.state(NAME) == ("RUNNING", "b")
    assert place.cluster.starts(NAME) == 2


def test_a_redeploy_without_a_target_stays(place: Place) -> None:
    assert isinstance(done := perform(place, to(task(EventType.REDEPLOY), "")), Done)
    assert done.moved == {"web_0": "a"}
    assert place.cluster.starts(NAME) == 2


def test_an_unknown_target_is_refused_and_another_one_is_taken(place: Place) -> None:
    elsewhere = to(task(EventType.REDEPLOY), "h9")
    assert isinstance(why := check(place, elsewhere), Veto)
    assert "h9" in why.why
    assert isinstance(failed := perform(place, elsewhere), Failed)
    assert failed.unsuitable == ("h9",)
    assert place.cluster.state(NAME) == ("RUNNING", "a")

    assert isinstance(done := perform(place, later(to(elsewhere, "b"))), Done)
    assert done.moved == {"web_0": "b"}


@pytest.mark.parametrize("keep", [False, True])
def test_an_evicted_instance_is_gone_or_stopped(cluster: Cluster, keep: bool) -> None:
    place = Place(cluster, keep=keep)
    gone = task(EventType.PREEMPT)
    assert check(place, gone) == Ok()
    assert isinstance(perform(place, gone), Done)
    assert observe(place, gone) == Happened()
    assert isinstance(perform(place, later(gone)), Done)
    assert cluster.state(NAME) == (("STOPPED", "a") if keep else ("", ""))
    cluster.delete(NAME)


def test_what_cannot_be_done_is_refused(place: Place) -> None:
    live = msgspec.structs.replace(task(), **LIVE)
    assert isinstance(why := check(place, live), Veto)
    assert "migration.stateful" in why.why
    place.launch("--ephemeral")
    assert isinstance(why := check(place, task()), Veto)
    assert "ephemeral" in why.why
    place.cluster.delete(NAME)
    assert check(place, task()) == Veto("web_0: there is no such instance")
    assert isinstance(perform(place, task()), Failed)
    assert isinstance(observe(place, task()), Unknown)


def test_a_late_attempt_is_refused(place: Place) -> None:
    assert isinstance(perform(place, task(fence=8)), Done)
    assert isinstance(perform(place, task(fence=7)), Unknown)
    assert isinstance(observe(place, task(fence=7)), Unknown)
    assert place.impacts() == 1


def test_a_server_that_does_not_answer_is_asked_later(place: Place) -> None:
    place.options = msgspec.structs.replace(place.options, url="unix:///nowhere")
    assert isinstance(check(place, task()), Veto)
    assert isinstance(observe(place, task()), Later)
    assert isinstance(perform(place, task()), Unknown)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("type", [EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY])
def test_a_driver_that_is_killed_disturbs_nothing_twice(
    place: Place, type: EventType, after: bool
) -> None:
    """Before or after each request that changes something; another one goes on from there."""
    event = msgspec.structs.replace(task(type), duration=3)
    for number in count(1):
        place.launch()

        async def killed() -> bool:
            driver = place.driver(Dying(place.options, number, after=after))  # noqa: B023
            try:
                await _carry_out(driver, event)
            except Killed:
                return True
            finally:
                await driver.aclose()
            return False

        if not asyncio.run(killed()):
            assert number > 3
            break
        last = event
        while not isinstance(observe(place, last), Happened):
            last = later(last, 3 * SECOND)
            assert isinstance(perform(place, last), Done | Running)
        assert place.impacts() == 1
        assert place.cluster.starts(NAME) == (1 if type is EventType.FREEZE else 2)
        wanted = "b" if type is EventType.REDEPLOY else "a"
        assert place.cluster.state(NAME) == ("RUNNING", wanted)


async def _carry_out(driver: Driver, task: Task) -> None:
    while isinstance(performed := await driver.perform(task), Running):
        task = later(task, performed.after)
    assert isinstance(performed, Done)


def test_what_runs_where_is_reported(place: Place) -> None:
    place.cluster.execute("lxc", "config", "set", NAME, "user.forewarn-group=web", "limits.cpu=2")
    place.cluster.execute("lxc", "config", "set", NAME, "limits.memory=64MiB")

    async def watch() -> None:
        driver = place.driver()
        tasks = guard.Tasks()
        tasks.start(driver.watch(lambda seen: reports.update({seen.host: seen})), "watch")
        await until_async(lambda: names() == ([NAME], []), "an enumeration of both members")
        (machine,) = reports["a"].machines
        assert (machine.group, machine.cpus, machine.memory) == ("web", 2, 64 << 20)
        assert machine.vm_id
        assert (machine.state, reports["a"].whole) == (MachineState.RUNNING, True)

        run = place.cluster.execute
        await asyncio.to_thread(run, "lxc", "stop", "--force", NAME)
        await until_async(lambda: reports["a"].machines[0].state is MachineState.STOPPED)
        await asyncio.to_thread(run, "lxc", "move", NAME, "--target=b")
        await until_async(lambda: names() == ([], [NAME]), "the instance on the other member")
        await asyncio.to_thread(run, "lxc", "delete", NAME)
        await until_async(lambda: names() == ([], []), "its end")
        await tasks.end()
        await driver.aclose()

    def names() -> tuple[list[str], ...]:
        seen = (reports.get(host, Seen(host=host)) for host in "ab")
        return tuple([machine.name for machine in one.machines] for one in seen)

    reports: dict[str, Seen] = {}
    asyncio.run(watch())


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"url": "http://10.0.0.1:8443"}, "url"),
        ({"url": "unix://"}, "url"),
        ({"url": "https://10.0.0.1:8443"}, "url"),
        ({"shutdown": "soon"}, "shutdown"),
        ({"freeze": "-5s"}, "freeze"),
    ],
)
def test_options_that_cannot_be_used_are_named(options: dict[str, Any], key: str) -> None:
    assert [name for name, _ in IncusOptions(**options).problems()] == [key]


def test_the_driver_is_found_by_its_name_and_usable_as_it_is() -> None:
    found = registry.load("incus")
    assert list(found.options().problems()) == []
    assert isinstance(found.make(found.options(), DriverContext()), IncusDriver)
