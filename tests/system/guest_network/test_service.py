"""The whole service behind the shipped rules: guests in namespaces ask 169.254.169.254, and one of
them lies about who it is. Everything it does works on a bare bridge first."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute  # type: ignore[import-untyped]

from helpers.endpoint import METADATA, NEWEST, NO_METADATA_HEADER, REASONED, events
from helpers.ethernet import claim, send
from helpers.guest_firewall import (
    HOST,
    LIAR,
    PEER,
    RULES,
    SIX,
    VICTIM,
    dropped,
    elements,
    give,
    knock,
    let_in,
    mac_of,
    needs_rules,
    nft,
    three_guests,
    until_dropped,
    within,
)
from helpers.guest_network import CONTROL, POLL, GuestNetwork, approve, poll
from helpers.netns import METADATA_ADDRESS, Namespace
from helpers.raw_http import RawResponse, exchange, request

SECOND_ADDRESS = "10.77.0.254"  # of the host, and for nothing but the endpoint
PLACES = (METADATA_ADDRESS, 80), (METADATA_ADDRESS, 8080), (SECOND_ADDRESS, 80)

# Answers every poll as if it were the endpoint.
IMPOSTOR = f"""
from http.server import BaseHTTPRequestHandler, HTTPServer

class Impostor(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{{"DocumentIncarnation":666,"Events":[]}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = HTTPServer(("{METADATA_ADDRESS}", 80), Impostor)
print("ready", flush=True)
server.serve_forever()
"""
# Hands on what it is asked, and for whom, as reverse proxies do; /fetch is the kind of thing that
# fetches any address one gives it.
PROXY = f"""
import urllib.error, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

class Proxy(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/fetch?"):
            asked = urllib.request.Request(self.path.partition("?")[2])
        else:
            asked = urllib.request.Request("http://{METADATA_ADDRESS}" + self.path)
            asked.add_header("Metadata", self.headers.get("Metadata", ""))
            asked.add_header("X-Forwarded-For", self.client_address[0])
        try:
            answer = urllib.request.urlopen(asked)
        except urllib.error.HTTPError as error:
            answer = error
        body = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = HTTPServer(("0.0.0.0", 8080), Proxy)
print("ready", flush=True)
server.serve_forever()
"""
# Asks without a pause, each time on a connection of its own.
POLLER = f"""
import urllib.request
while True:
    asked = urllib.request.Request("http://{METADATA_ADDRESS}{events(NEWEST)}")
    asked.add_header("Metadata", "true")
    assert urllib.request.urlopen(asked).status == 200
    print("answered", flush=True)
"""
ARM_PORT = 8171  # of the API for az and Azure's SDKs


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestNetwork]:
    needs_rules()
    with three_guests() as lab:
        served = GuestNetwork(lab, tmp_path_factory.mktemp("served"))
        served.environment["FOREWARN_ALLOW_OTHER_ADDRESSES"] = "true"
        give(lab.host, "lo", SECOND_ADDRESS, 32)
        served.serve(*(f"--metadata={host}:{port}" for host, port in PLACES))
        yield served


def test_honest_guests_poll_and_approve_under_the_rules(served: GuestNetwork) -> None:
    with served.rules():
        for guest in served.lab.guests.values():
            assert poll(guest).status == 200
        event = served.output("event", "schedule", "Freeze", "web_1")["id"]
        assert approve(served.victim, event).status == 200

        assert served.output("event", "show", event)["approved"]["by"] == "web_0"
        assert dropped(served.lab.host) == {}


def test_a_guest_cannot_approve_as_another(served: GuestNetwork) -> None:
    assert poll(served.victim).status == 200
    event = served.output("event", "schedule", "Reboot", "web_0")["id"]
    give(served.liar, "eth0", VICTIM)
    try:
        with served.rules():
            assert poll(served.victim).status == 200  # the host knows where the victim is
            send(served.liar, claim(mac_of(served.liar), VICTIM))
            with knock(served.liar, (METADATA_ADDRESS, 80), VICTIM) as knocking:
                until_dropped(served.lab.host, "forged_arp", "forged_ip")
                assert not let_in(knocking, within=0)
            assert [e["EventId"] for e in poll(served.victim).json()["Events"]][-1] == event
            assert served.output("event", "show", event)["approved"] is None

        assert poll(served.victim).status == 200
        send(served.liar, claim(mac_of(served.liar), VICTIM))
        assert approve(served.liar, event, VICTIM).status == 200
        assert served.output("event", "show", event)["approved"]["by"] == "web_0"  # says the liar
    finally:
        take(served.liar, "eth0", VICTIM)
        served.forget()


def test_a_guest_cannot_answer_anothers_poll(served: GuestNetwork) -> None:
    give(served.liar, "lo", METADATA_ADDRESS, 32)
    impostor = served.liar.popen([sys.executable, "-c", IMPOSTOR])
    assert impostor.line() == "ready"
    try:
        with served.rules():
            assert poll(served.victim).json()["DocumentIncarnation"] != 666
            send(served.liar, claim(mac_of(served.liar), HOST))
            until_dropped(served.lab.host, "forged_arp")
            assert poll(served.victim).json()["DocumentIncarnation"] != 666

        assert poll(served.victim).json()["DocumentIncarnation"] != 666
        send(served.liar, claim(mac_of(served.liar), HOST))
        assert poll(served.victim).json()["DocumentIncarnation"] == 666
    finally:
        impostor.stop()
        take(served.liar, "lo", METADATA_ADDRESS)
        served.forget()


def test_a_guest_cannot_reach_the_control_api_on_loopback(served: GuestNetwork) -> None:
    """It can where the host routes such addresses, as some load balancers ask it to."""
    for place, link in ((served.lab.host, "br0"), (served.liar, "eth0")):
        place.call(Path(f"/proc/sys/net/ipv4/conf/{link}/route_localnet").write_text, "1")
    take(served.liar, "lo", CONTROL[0])
    within(served.liar, lambda ip: ip.route("add", dst=f"{CONTROL[0]}/32", gateway=HOST))
    try:
        ask = request("GET", "/healthz", "Connection: close")
        assert served.liar.call(exchange, CONTROL, ask, source=LIAR).line.startswith("HTTP/1.1")
        with served.rules(), knock(served.liar, CONTROL, LIAR) as knocking:
            until_dropped(served.lab.host, "loopback")
            assert not let_in(knocking, within=0)
    finally:
        within(served.liar, lambda ip: ip.route("del", dst=f"{CONTROL[0]}/32", gateway=HOST))
        give(served.liar, "lo", CONTROL[0], 8)


@pytest.mark.parametrize(
    ("to", "port", "counter"),
    [
        (HOST, CONTROL[1], "control"),
        (HOST, ARM_PORT, "control"),
        (METADATA_ADDRESS, CONTROL[1], "other_ports"),
    ],
)
def test_a_guest_reaches_the_endpoint_and_no_control_port(
    served: GuestNetwork, to: str, port: int, counter: str
) -> None:
    edited = served.room / "edited.nft"
    ports = f"control_ports = {{ 8170, {ARM_PORT} }}"
    edited.write_text(RULES.read_text().replace("control_ports = { 8170 }", ports))
    with served.lab.host.call(socket.create_server, (to, port)):
        with knock(served.liar, (to, port)) as knocking:
            assert let_in(knocking)
        with served.rules(edited), knock(served.liar, (to, port)) as knocking:
            until_dropped(served.lab.host, counter)
            assert not let_in(knocking, within=0)


def test_further_addresses_and_ports_are_open_if_the_rules_name_them_and_guarded_alike(
    served: GuestNetwork,
) -> None:
    with served.rules(), knock(served.liar, PLACES[1]) as knocking:  # the rules as shipped
        until_dropped(served.lab.host, "other_ports")
        assert not let_in(knocking, within=0)
    edited = served.room / "edited.nft"
    text = RULES.read_text().replace("endpoint_ports = { 80 }", "endpoint_ports = { 80, 8080 }")
    both = f"endpoint4 = {{ {METADATA_ADDRESS}, {SECOND_ADDRESS} }}"
    edited.write_text(text.replace(f"endpoint4 = {METADATA_ADDRESS}", both))
    give(served.liar, "eth0", VICTIM)
    try:
        with served.rules(edited):
            for place in PLACES:
                for guest in served.lab.guests.values():
                    source = LIAR if guest is served.liar else None
                    assert guest.call(exchange, place, POLL, source=source).status == 200
            assert dropped(served.lab.host) == {}
            for place in PLACES:
                nft(served.lab, "reset", "counters")
                with knock(served.liar, place, VICTIM) as knocking:
                    until_dropped(served.lab.host, "forged_arp", "forged_ip")
                    assert not let_in(knocking, within=0)
            nft(served.lab, "reset", "counters")
            with knock(served.liar, (SECOND_ADDRESS, CONTROL[1]), LIAR) as knocking:
                until_dropped(served.lab.host, "other_ports")
                assert not let_in(knocking, within=0)
    finally:
        take(served.liar, "eth0", VICTIM)
        served.forget()


def test_polls_fill_no_table_of_connections(served: GuestNetwork) -> None:
    table = Path("/proc/thread-self/net/nf_conntrack")
    # A rule that looks at connections is what makes the kernel keep them.
    looks = "table ip kept { chain c { type filter hook input priority 0; ct state new; }; }"
    with served.rules(), served.lab.host.call(socket.create_server, (HOST, 4078)):
        nft(served.lab, looks)
        served.victim.call(socket.create_connection, (HOST, 4078), 10).close()
        assert poll(served.victim).status == 200
        kept = served.lab.host.call(table.read_text)
        nft(served.lab, "delete table ip kept")
    assert "dport=4078" in kept
    assert "dport=80 " not in kept


def test_a_strangers_request_through_a_guests_proxy_is_refused(served: GuestNetwork) -> None:
    proxy = served.victim.popen([sys.executable, "-c", PROXY])
    assert proxy.line() == "ready"
    target = events(NEWEST)

    def through(asked: bytes) -> RawResponse:
        return served.liar.call(exchange, (VICTIM, 8080), asked)

    try:
        with served.rules():
            handed_on = through(request("GET", target, METADATA))
            assert handed_on.status == 400
            assert REASONED.fullmatch(handed_on.body), handed_on
            fetched = through(request("GET", f"/fetch?http://{METADATA_ADDRESS}{target}"))
            assert (fetched.status, fetched.body) == (400, NO_METADATA_HEADER)
            assert poll(served.victim).status == 200  # it may ask for itself
    finally:
        proxy.stop()


def test_guests_are_replaced_in_one_step_while_they_poll(served: GuestNetwork) -> None:
    with served.rules():
        # All are known throughout: even one that does nothing says something now and then.
        known = {guest: [guest, SIX[guest]] for guest in (VICTIM, PEER, LIAR)}
        more = elements(served.lab, served.room, known | {LIAR: [*known[LIAR], "10.77.0.99"]})
        more = more.rename(served.room / "more.nft")
        fewer = elements(served.lab, served.room, known)
        nft(served.lab, "-f", fewer)
        nft(served.lab, "reset", "counters")
        polls = served.victim.popen([sys.executable, "-c", POLLER])
        for _ in range(20):
            polls.line()  # it has been answered again since
            nft(served.lab, "-f", more)
            nft(served.lab, "-f", fewer)
        assert polls.process.poll() is None, polls.failure("a poll was lost")
        polls.stop()
        assert dropped(served.lab.host) == {}


def take(guest: Namespace, link: str, address: str) -> None:
    """Give an address up."""

    def remove(ip: IPRoute) -> None:
        [index] = ip.link_lookup(ifname=link)
        ip.flush_addr(index=index, address=address)

    within(guest, remove)
