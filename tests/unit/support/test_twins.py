"""Processes with the certificate of one host: one after the other, or two at a time."""

from __future__ import annotations

from forewarn.support.twins import MOST, REMEMBERED, Twins


def greet(twins: Twins, *instances: str) -> list[bool]:
    """Have processes send their hellos, a second apart."""
    return [twins.greeted("h1", name, float(at)) for at, name in enumerate(instances)]


def test_a_node_may_be_started_again_and_again_and_lose_its_connection() -> None:
    assert not any(greet(Twins(), *"AABBBBCDD"))


def test_a_hello_that_arrives_after_the_next_process_was_started_is_no_second_node() -> None:
    assert not any(greet(Twins(), *"AABABBB"))


def test_processes_that_take_each_others_place_are_two_nodes() -> None:
    assert greet(Twins(), *"ABABABB") == [False, False, False, False, True, True, True]


def test_one_of_two_nodes_is_served_when_the_other_was_silent_for_a_while() -> None:
    twins = Twins()
    greet(twins, *"ABABAB")
    assert twins.greeted("h1", "A", 5 + REMEMBERED / 2)
    assert not twins.greeted("h1", "A", 5 + REMEMBERED)
    assert not twins.greeted("h1", "B", 6 + REMEMBERED)


def test_each_host_has_nodes_of_its_own_and_few_of_them_are_remembered() -> None:
    twins = Twins()
    greet(twins, *"ABABA")
    assert not twins.greeted("h2", "B", 5.0)
    greet(twins, *map(str, range(5 * MOST)))
    assert len(twins._processes["h1"]) == MOST
