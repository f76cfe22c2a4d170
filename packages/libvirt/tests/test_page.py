"""docs/operate/libvirt.md, from two hosts to a rollout: its commands, settings and files as they
are there, run where they are to be run.

What is not here: packages are not installed but stand in for by the programs of this checkout, and
without systemd, the test starts what its units would. The disks of the guests are in memory.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers.libvirt_hosts import CONTROL, HOSTS, PAGE, Guest, Host, Hosts, shown_driver_settings
from helpers.netns import Namespace
from helpers.serve_process import FOREWARN
from helpers.waiting import LIMIT, until

HERE = {"192.0.2.11": CONTROL, "10.0.0.": "10.77.0."}  # what the page has, and what is here
AUTHORITY = Path("/var/lib/forewarn/authority")
# A command of a package: where its settings and its directory are, on a host.
COMMAND = """#!/bin/sh
export FOREWARN_{upper}_CONFIG={settings}
exec {forewarn} {kind} "$@" --directory {directory} --no-start
"""
# Where a package keeps what it has to; and guests have nothing that would shut them down.
NODE = 'journal = "{directory}/journal"\n'
DRIVER = 'directory = "{directory}"\n', 'shutdown = "0s"\n'
MIGRATIONS = {"web-0": 2, "web-1": 1}  # from h1 to h2, and both back again


def block(kind: str) -> str:
    """Return the block of the page with these words after its fence, for these hosts."""
    page = PAGE.read_text()
    [found] = re.findall(rf"^```{re.escape(kind)}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for shown, here in HERE.items():
        found = found.replace(shown, here)
    return str(found)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with Hosts(tmp_path, bare=True) as hosts:
        yield hosts


class Shell:
    """Somebody who runs the commands of the page in one place."""

    def __init__(self, place: Namespace, programs: Path, **environment: str) -> None:
        self._place = place
        self._programs = programs
        self._environment = environment

    def run(self, command: str) -> str:
        path = f"{self._programs}:{Path(FOREWARN[0]).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, **self._environment}
        words = ["bash", "-euc", command]
        return self._place.run(words, env=environment, timeout=LIMIT).stdout


def on_host(host: Host, forewarn: str) -> Shell:
    """Install the programs of the package of a node on a host, with empty settings."""
    programs = host.directory / "programs"
    programs.mkdir()
    before, after = DRIVER
    for kind, text, shown in (("node", NODE, ""), ("driver", before, shown_driver_settings())):
        directory = host.directory / kind
        directory.mkdir(exist_ok=True)
        settings = host.directory / f"{kind}.toml"
        settings.write_text(text.format(directory=directory) + (shown and shown + after))
        program = programs / f"forewarn-{kind}"
        values = {"kind": kind, "upper": kind.upper(), "settings": settings}
        program.write_text(COMMAND.format(forewarn=forewarn, directory=directory, **values))
        program.chmod(0o755)
    return Shell(host.namespace, programs, LIBVIRT_DEFAULT_URI=host.uri)


def test_the_page_leads_from_two_hosts_to_a_rollout(hosts: Hosts, tmp_path: Path) -> None:
    forewarn = " ".join(map(str, FOREWARN))
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "forewarn").write_text(f'#!/bin/sh\nexec {forewarn} "$@"\n')
    (programs / "forewarn").chmod(0o755)
    control = Shell(hosts.outside, programs, XDG_RUNTIME_DIR=str(tmp_path))
    shells = {name: on_host(host, forewarn) for name, host in hosts.hosts.items()}

    shells["h1"].run(block("sh reach"))
    AUTHORITY.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(AUTHORITY, ignore_errors=True)
    control.run(block("sh authority"))
    (directory := tmp_path / "control").mkdir()
    more = 'state = "state.db"\nrecord = "control.jsonl"\nlog = "json"\n'
    (directory / "serve.toml").write_text(more + block("toml control"))
    hosts.start_control()
    (directory / "fleet.yaml").write_text(block("yaml fleet"))
    control.run(f"forewarn apply {directory}/fleet.yaml")

    for name in HOSTS:
        for kind in ("sh enroll", "sh enroll-driver"):
            shells[name].run(control.run(block(kind).replace("h1", name)))
        hosts.hosts[name].start_node()
        hosts.hosts[name].start_driver()
    until(hosts.connected, "the nodes and driver processes of both hosts")
    listed = control.run(block("sh joined"))
    assert [line.split().count("joined") for line in listed.splitlines()] == [0, 2, 2]

    guests = [Guest(f"web-{n}", 10 + n, tmp_path / f"web-{n}.console") for n in (0, 1)]
    for guest, host in zip(guests, HOSTS, strict=True):
        hosts.boot(guest, host)
    shells["h2"].run(block("sh describe"))
    try:
        until(lambda: "web-1" in control.run(block("sh machines")), "web-1 in the inventory")
    except AssertionError as error:
        error.add_note(hosts.api("GET", "/v1/drift").body.decode())
        raise
    for guest in guests:
        guest.until_answered()

    control.run(block("sh rollout"))
    until(lambda: states(hosts) == {"done"}, "the end of the rollout")
    until(lambda: [len(guest.boots()) for guest in guests] == [2, 2], "the second boot of both")
    assert [hosts.where(guest.name) for guest in guests] == [["h1"], ["h2"]]

    polls = {guest: len(guest.polls()) for guest in guests}
    control.run(block("sh evacuate"))
    for name in HOSTS:
        until(partial(is_empty, hosts, guests, name, set()), f"the end of machines on {name}")
        control.run(block("sh return").replace("h1", name))
    until(lambda: states(hosts) == {"done"}, "the end of the second rollout")
    assert [hosts.where(guest.name) for guest in guests] == [["h1"], ["h1"]]
    for guest in guests:
        if len(guest.boots()) == 2:  # it did not hang: no poll failed but that in a migration
            failed = [poll for poll in guest.polls()[polls[guest] :] if poll.document is None]
            assert len(failed) <= MIGRATIONS[guest.name]

    # Never two update domains at a time: a document shows all events of the group.
    shown = [started(poll.document) for guest in guests for poll in guest.polls()]
    assert [names for names in shown if len(names) > 1] == []
    assert {"web-0"} in shown
    assert {"web-1"} in shown


def is_empty(hosts: Hosts, guests: list[Guest], host: str, reset: set[str]) -> bool:
    """Return whether no machine is on a host, or on its way. An emulated guest can hang after its
    migration by itself: the next one waits until somebody has reset it."""
    machines = {guest.name: hosts.machine(guest.name) for guest in guests}
    for name, machine in machines.items():
        if machine["not_back"] and machine["not_back"]["event"] not in reset:
            reset.add(machine["not_back"]["event"])
            hosts.hosts[machine["host"]].domain(name).reset(0)
    on_hosts = {machine["host"] for machine in machines.values()}
    return host not in on_hosts and not any(hosts.events(name) for name in machines)


def states(hosts: Hosts) -> set[str]:
    return {rollout["state"] for rollout in hosts.api("GET", "/v1/rollouts").json()}


def started(document: dict[str, Any] | None) -> set[str]:
    """Return the machines of the events that a document shows as Started."""
    events = (document or {}).get("Events", [])
    return {name for e in events if e["EventStatus"] == "Started" for name in e["Resources"]}
