"""Three hosts with nodes, whose guests ask 169.254.169.254 all the time, while processes are
killed, lines are cut in one direction, a machine moves, and strangers call control."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from forewarn.metadata.publishing.messages import (
    NODE_PROTOCOLS,
    Answer,
    Approve,
    Enable,
    NodeHello,
    SnapshotEnd,
    ToNode,
    Unwelcome,
    Welcome,
)
from forewarn.node.config import Tls
from forewarn.support.message_stream import BrokenConnection, MessageStream
from helpers.certificates import Authority
from helpers.guest_firewall import needs_rules
from helpers.three_hosts import CONTROL, GUESTS, HOSTS, MOVES, SPARE, ThreeHosts
from helpers.waiting import until


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeHosts]:
    needs_rules()
    with ThreeHosts(tmp_path_factory.mktemp("hosts")) as hosts:
        until(hosts.joined)
        yield hosts


def test_while_control_is_away_guests_are_answered_and_nothing_is_approved(
    hosts: ThreeHosts,
) -> None:
    guests = hosts.guests
    event = hosts.schedule("Reboot", "web_1")
    assert guests["web_0"].place.address == guests["shop_0"].place.address
    assert (guests["web_0"].sees(event), guests["shop_0"].sees(event)) == ("Scheduled", "")
    shown = {name: guest.poll() for name, guest in guests.items()}
    since = {name: len(guest.lines) for name, guest in guests.items()}
    hosts.kill(hosts.control)
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(guests[f"web_{n}"].approve, event) for n in range(3)]
        until(lambda: all(hosts.unreachable(host) for host in HOSTS))
        assert [answer.result() for answer in asked] == [500, 500, 500]
    assert {name: guest.poll() for name, guest in guests.items()} == shown

    hosts.start_control()
    until(hosts.joined)
    assert {name: guest.poll() for name, guest in guests.items()} == shown
    assert hosts.event(event)["approved"] is None
    assert "started" not in hosts.history(event)
    assert guests["web_0"].approve(event) == 200
    until(lambda: "finished" in hosts.history(event))
    until(lambda: not any(guests[f"web_{n}"].sees(event) for n in range(3)))
    assert hosts.history(event).count("approved") == 1
    assert [g.refused(since[n]) for n, g in guests.items()] == [[]] * len(GUESTS)
    hosts.judge()


def test_a_link_cut_in_one_direction_does_not_delay_other_hosts(
    hosts: ThreeHosts,
) -> None:
    """Also if the node of such a host is killed, and started again."""
    guests = hosts.guests
    # The node of web_2 is told of the event, and holds the group back until it can say so.
    away = ["web_0", "shop_1", "mail"]
    shown = {name: guests[name].poll() for name in away}
    since = {name: len(guest.lines) for name, guest in guests.items()}
    hosts.cut("rack-1", "from control")
    hosts.cut("rack-3", "to control")
    first = hosts.schedule("Reboot", "web_1")
    assert guests["web_1"].sees(first) == "Scheduled"
    assert {name: guests[name].poll() for name in away} == shown
    hosts.kill(hosts.nodes["rack-3"])
    hosts.start_node("rack-3")
    again = {name: len(guests[name].lines) for name in ("web_2", "mail")}
    second = hosts.schedule("Reboot", "shop_1")
    assert guests["shop_0"].approve(second) == 200
    assert guests["web_1"].approve(first) == 200
    until(lambda: "finished" in hosts.history(first))
    assert hosts.event(second)["status"] == "Scheduled"
    holds = hosts.api("GET", f"/v1/events/{second}/explain").json()["holds"]
    assert "reach" in [hold["kind"] for hold in holds]
    assert {name: guests[name].poll() for name in away} == shown

    for host in ("rack-1", "rack-3"):
        hosts.heal(host)
    until(hosts.joined)
    until(lambda: "finished" in hosts.history(second))
    until(lambda: not any(guest.poll()["Events"] for guest in guests.values()))
    for name, guest in guests.items():
        assert guest.refused(again.get(name, since[name])) == []
    hosts.judge()


def test_a_machine_that_moves_is_answered_on_both_hosts_and_loses_no_poll(
    hosts: ThreeHosts,
) -> None:
    name, new = MOVES
    old, _ = GUESTS[name]
    guest = hosts.guests[name]
    since = {name: len(guest.lines) for name, guest in hosts.guests.items()}
    raised = hosts.api("POST", f"/v1/hosts/{old}/maintain", {"mode": "live-migration"}).json()
    events = {event["machines"][0]: event["id"] for event in raised["events"]}
    assert guest.approve(events[name]) == 200
    until(lambda: guest.sees(events[name]) == "Started")
    before, there = guest.place, hosts.place(name, new)
    assert guest.ask(there)["answer"] == guest.ask(before)["answer"]
    guest.place = there
    until(lambda: guest.lines[-1]["host"] == new)
    (hosts.room / "moved").touch()
    until(lambda: "finished" in hosts.history(events[name]))
    until(lambda: guest.sees(events[name]) == "")
    until(lambda: guest.exchange(before)["status"] == 404)

    for host in (old, new):  # the packet filter of each host as well
        hosts.register_guests(host)
    assert name in hosts.registered(new)
    assert name not in hosts.registered(old)
    assert guest.poll()["Events"] == []
    for other in events.keys() - {name}:
        assert hosts.api("POST", f"/v1/events/{events[other]}/cancel", {}).status == 200
    assert [g.refused(since[n]) for n, g in hosts.guests.items()] == [[]] * len(GUESTS)
    hosts.judge()


def test_a_node_with_the_certificate_of_another_can_neither_read_nor_approve(
    hosts: ThreeHosts,
) -> None:
    event = hosts.schedule("Reboot", "web_0")
    forged = Authority(hosts.room, "forged").issue("forewarn:node:rack-1")
    other = hosts.authority.issue(f"forewarn:node:{SPARE}")

    async def call(pair: Tls, host: str) -> list[ToNode]:
        """Say to be the node of a host, and call; returns all that control sends in answer."""
        context = hosts.authority.trusted()
        context.load_cert_chain(pair.certificate, pair.key)
        place = hosts.labs["rack-3"].host
        connection = place.call(socket.create_connection, (CONTROL, 8171))
        _, stream = await asyncio.get_running_loop().create_connection(
            lambda: MessageStream[ToNode](ToNode),
            sock=connection,
            ssl=context,
            server_hostname=CONTROL,
        )
        stream.send(
            NodeHello(
                protocols=NODE_PROTOCOLS, version="1", host=host, instance="other", serving=False
            )
        )
        stream.send(Enable(1, "web"))
        stream.send(Approve(2, "web_0", "web", (event,)))
        received: list[ToNode] = []
        try:
            while len(received) < 4:
                received.append(await stream.receive())
        except BrokenConnection:
            pass
        stream.cut()
        return received

    assert asyncio.run(call(forged, "rack-1")) == []
    # The answer is lost if more arrives when the connection is closed.
    assert {type(message) for message in asyncio.run(call(other, "rack-1"))} <= {Unwelcome}
    received = asyncio.run(call(other, SPARE))  # which is no node of anything
    assert {type(message) for message in received} == {Welcome, SnapshotEnd, Answer}
    answers = [message for message in received if isinstance(message, Answer)]
    assert [answer.id for answer in answers] == [1, 2]
    assert all("not on this host" in answer.failed for answer in answers)
    assert hosts.event(event)["approved"] is None
    assert "started" not in hosts.history(event)
    assert hosts.joined()
    hosts.judge()
