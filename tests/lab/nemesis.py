"""What goes wrong in the lab. Each fault is there for the length of a block."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from random import Random

from helpers.waiting import until
from lab.world import CONTROL, HOSTS, PatroniCluster, SingleServer, World

Block = contextlib.AbstractContextManager[None]
Ways = list[tuple[str, str]]


def leader(world: World) -> str:
    return until(world.leader, "a control node decides")


def both(one: str, *others: str) -> Ways:
    return [way for other in others for way in ((one, other), (other, one)) if one != other]


def leader_killed(world: World, chance: Random) -> Block:
    return world.without(leader(world))


def leader_ended_in_good_order(world: World, chance: Random) -> Block:
    return world.without(leader(world), signal.SIGTERM)


@contextlib.contextmanager
def leader_killed_and_started_at_once(world: World, chance: Random) -> Iterator[None]:
    with world.without(leader(world)):
        pass
    yield


@contextlib.contextmanager
def leader_stands_still(world: World, chance: Random) -> Iterator[None]:
    name = leader(world)
    with world.stopped(name):
        until(lambda: world.leader(name), "another control node decides")
        yield


def leader_cut_off_from_the_database(world: World, chance: Random) -> Block:
    return world.dropped(*both(CONTROL[leader(world)], *world.database.machines))


def leader_cut_off_from_everything(world: World, chance: Random) -> Block:
    others = [*world.database.machines, *CONTROL.values(), *HOSTS.values()]
    return world.dropped(*both(CONTROL[leader(world)], *others))


def leader_cut_off_from_hosts(world: World, chance: Random) -> Block:
    return world.dropped(*both(CONTROL[leader(world)], *HOSTS.values()))


def follower_cut_off_from_the_database(world: World, chance: Random) -> Block:
    follower = chance.choice(sorted(CONTROL.keys() - {leader(world)}))
    return world.dropped(*both(CONTROL[follower], *world.database.machines))


def follower_started_with_a_wrong_clock(world: World, chance: Random) -> Block:
    follower = chance.choice(sorted(CONTROL.keys() - {leader(world)}))
    return world.wrong_clock(follower, chance.choice((-200.0, 200.0, 4000.0)))


@contextlib.contextmanager
def leader_killed_beside_a_wrong_clock(world: World, chance: Random) -> Iterator[None]:
    """Whoever begins to decide then."""
    name = leader(world)
    with follower_started_with_a_wrong_clock(world, chance), world.without(name):
        yield


@contextlib.contextmanager
def leader_whose_clock_steps(world: World, chance: Random) -> Iterator[None]:
    """One that was right before."""
    name, *others = chance.sample(sorted(CONTROL), len(CONTROL))
    with world.own_clock(name):
        with world.without(others[0]), world.without(others[1]):
            until(lambda: world.leader() == name, f"{name} decides")
        world.set_clock(name, chance.choice((-200.0, 4.0, 200.0, 4000.0)))
        yield


def node_with_a_wrong_clock(world: World, chance: Random) -> Block:
    return world.wrong_clock(chance.choice(sorted(HOSTS)), chance.choice((-200.0, 200.0, 4000.0)))


def leader_on_a_slow_network(world: World, chance: Random) -> Block:
    return world.slow(CONTROL[leader(world)])


def host_on_a_slow_network(world: World, chance: Random) -> Block:
    return world.slow(HOSTS[chance.choice(sorted(HOSTS))])


@contextlib.contextmanager
def leader_killed_while_a_host_is_cut_off(world: World, chance: Random) -> Iterator[None]:
    with host_cut_off(world, chance), leader_killed(world, chance):
        yield


@contextlib.contextmanager
def database_stands_still(world: World, chance: Random) -> Iterator[None]:
    assert isinstance(world.database, SingleServer)
    with world.database.stopped():
        yield


def leader_cloned(world: World, chance: Random) -> Block:
    return world.cloned(leader(world))


def host_cut_off(world: World, chance: Random) -> Block:
    return world.dropped(*both(HOSTS[chance.choice(sorted(HOSTS))], *CONTROL.values()))


def host_cut_off_from_the_leader(world: World, chance: Random) -> Block:
    return world.dropped(*both(HOSTS[chance.choice(sorted(HOSTS))], CONTROL[leader(world)]))


def host_cut_off_in_one_direction(world: World, chance: Random) -> Block:
    """It hears nothing."""
    host = HOSTS[chance.choice(sorted(HOSTS))]
    return world.dropped(*((control, host) for control in CONTROL.values()))


def host_cut_off_in_the_other_direction(world: World, chance: Random) -> Block:
    """Nobody hears it."""
    host = HOSTS[chance.choice(sorted(HOSTS))]
    return world.dropped(*((host, control) for control in CONTROL.values()))


def node_killed(world: World, chance: Random) -> Block:
    return world.without(chance.choice(sorted(HOSTS)))


def node_stands_still(world: World, chance: Random) -> Block:
    return world.stopped(chance.choice(sorted(HOSTS)))


@contextlib.contextmanager
def database_killed(world: World, chance: Random) -> Iterator[None]:
    assert isinstance(world.database, SingleServer)
    world.database.kill()
    try:
        yield
    finally:
        world.database.start()


@contextlib.contextmanager
def database_restored(world: World, chance: Random) -> Iterator[None]:
    """As the documentation says."""
    world.dump()
    yield
    with world.without_control():
        world.put_back_anew()
        world.use_restored()
    _is_recorded(world)


@contextlib.contextmanager
def database_restored_unnoticed(world: World, chance: Random) -> Iterator[None]:
    """Nodes on hosts know more, and follow nobody, until somebody says which state is used."""
    world.dump()
    before = world.commit()
    yield
    until(lambda: world.commit() > before, "there is something to lose")
    with world.without_control():
        world.put_back_anew()
    until(lambda: _names(world, b"the state went back"), "a control node names it")
    with world.without_control():
        world.use_restored()
    _is_recorded(world)


@contextlib.contextmanager
def database_restored_under_running_control_nodes(world: World, chance: Random) -> Iterator[None]:
    """They end, and nobody decides until somebody says which state is used."""
    world.dump()
    before = world.commit()
    yield
    until(lambda: world.commit() > before, "there is something to lose")
    world.put_back_at_once()
    until(lambda: _names(world, b"the database has lost"), "a control node names it")
    assert not world.leader()
    world.use_restored()
    _is_recorded(world)


def _names(world: World, problem: bytes) -> bool:
    answers = [world.ask(name, "GET", "/readyz") for name in CONTROL]
    return any(output is not None and problem in output.body for output in answers)


def _is_recorded(world: World) -> None:
    def recorded() -> bool:
        output = world.api("GET", "/v1/history?what=state-restored")
        return output is not None and len(output.json()["records"]) > 0

    until(recorded, "the history says that the state was restored")


@contextlib.contextmanager
def primary_killed(world: World, chance: Random) -> Iterator[None]:
    cluster = _patroni(world)
    cluster.kill_server(cluster.primary())
    yield
    cluster.wait_until(cluster.whole)


@contextlib.contextmanager
def primary_switched_over(world: World, chance: Random) -> Iterator[None]:
    cluster = _patroni(world)
    cluster.switch_over()
    yield
    cluster.wait_until(cluster.whole)


@contextlib.contextmanager
def primary_cut_off(world: World, chance: Random) -> Iterator[None]:
    cluster = _patroni(world)
    primary = cluster.primary()
    others = [*cluster.machines, *CONTROL.values()]
    with world.dropped(*both(primary, *others)):
        cluster.wait_until(lambda: cluster.has_primary_other_than(primary))
        yield
    cluster.wait_until(cluster.whole)


def _patroni(world: World) -> PatroniCluster:
    assert isinstance(world.database, PatroniCluster)
    return world.database


Nemesis = Callable[[World, Random], Block]
# The order in which a short run has them.
EVERYWHERE: list[Nemesis] = [
    leader_killed,
    host_cut_off_in_one_direction,
    leader_stands_still,
    host_cut_off_in_the_other_direction,
    leader_cut_off_from_the_database,
    node_killed,
    leader_ended_in_good_order,
    host_cut_off_from_the_leader,
    leader_cut_off_from_everything,
    node_stands_still,
    leader_killed_and_started_at_once,
    host_cut_off,
    leader_cut_off_from_hosts,
    follower_cut_off_from_the_database,
    follower_started_with_a_wrong_clock,
    leader_killed_beside_a_wrong_clock,
    leader_whose_clock_steps,
    node_with_a_wrong_clock,
    leader_on_a_slow_network,
    host_on_a_slow_network,
    leader_killed_while_a_host_is_cut_off,
    leader_cloned,
    database_restored,
    database_restored_unnoticed,
    database_restored_under_running_control_nodes,
]
ON_A_SINGLE_SERVER = [*EVERYWHERE, database_killed, database_stands_still]
ON_PATRONI = [*EVERYWHERE, primary_switched_over, primary_killed, primary_cut_off]
