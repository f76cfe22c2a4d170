"""Servers that HAProxy sends nothing new to before an event, and sends to again after it.

Undo takes back our own change only: what somebody else has set in the meantime, and what a reload
has forgotten, stays as it is.
"""

from __future__ import annotations

import msgspec

from forewarn.agent.hooks.contract import Call, Failure, Run, wait
from forewarn.agent.hooks.haproxy_runtime_api import RuntimeApi, Server, State, Unreachable
from forewarn.agent.hooks.options import Haproxy, seconds
from forewarn.support import guard
from forewarn.support.text import SECOND, in_words

LOOK_EVERY = 0.2  # seconds, at the sessions that are still open
BACK_WITHIN = 10.0  # seconds in which a HAProxy that was there a moment ago is there again


class Ours(msgspec.Struct, frozen=True):
    found: State
    set: State  # the last that we set, or were about to


def act(run: Run, options: Haproxy) -> list[str]:
    return _drained(run, options) if run.call.stage == "prepare" else _put_back(run, options)


def check(options: Haproxy) -> list[str]:
    api = RuntimeApi(options.socket)
    try:
        level, servers = api.level(), api.servers()
    except Failure as failure:
        return [str(failure)]
    from forewarn.support.suggest import instead_of  # only complaints need it

    problems = []
    if level != "admin":
        problems.append(
            f"{options.socket} lets nobody set a server's state (level {level or 'unknown'});"
            " write `level admin` behind its `stats socket`"
        )
    backends = {name.partition("/")[0] for name in servers}
    for name in options.servers():
        backend = name.partition("/")[0]
        if "{" not in backend and backend not in backends:
            problems.append(f"there is no backend {backend}; {instead_of(backend, backends)}")
        elif "{" not in name and name not in servers:
            problems.append(f"there is no server {name}; {instead_of(name, servers)}")
    return problems


def _drained(run: Run, options: Haproxy) -> list[str]:
    api = RuntimeApi(options.socket, run.end)
    servers = api.servers()
    names, lines = _named(run.call, options, servers)
    kept = run.kept("haproxy", dict[str, Ours]) or {}
    busy: list[str] = []
    for name in names:
        found = kept[name].found if name in kept else servers[name].state
        if found == "maint":
            lines.append(f"{name} is in maintenance already, and is left there")
            continue
        kept.setdefault(name, Ours(found, "drain"))  # we may have been here before
        busy.append(name)
    run.keep("haproxy", kept)
    for name in busy:
        if servers[name].state == "ready":
            api.set(name, "drain")
    began = guard.monotonic()
    still = _waited(api, busy, run.at_most(seconds(options.drain)))
    waited = round((guard.monotonic() - began) * 10) * SECOND // 10
    after = f" after {in_words(waited)}" if waited else ""
    if options.then == "maint":
        run.keep("haproxy", kept | {name: Ours(kept[name].found, "maint") for name in busy})
        for name in busy:
            api.set(name, "maint")
    state = "in maintenance" if options.then == "maint" else "draining"
    for name in busy:
        lines.append(f"{name} is {state}, {_sessions(still.get(name, 0))} open{after}")
    return lines or ["none of the event's resources is a server here"]


def _sessions(count: int) -> str:
    if not count:
        return "no session"
    return "1 session still" if count == 1 else f"{count} sessions still"


def _waited(api: RuntimeApi, names: list[str], until: float) -> dict[str, int]:
    """Until no session is open, or the time is up; those that still are."""
    there_until = guard.monotonic() + BACK_WITHIN
    while True:
        try:
            servers = api.servers()
            forgotten = [n for n in names if n in servers and servers[n].state == "ready"]
            for name in forgotten:  # by a reload
                api.set(name, "drain")
        except Unreachable:
            if guard.monotonic() >= min(until, there_until):
                raise
        else:
            there_until = guard.monotonic() + BACK_WITHIN
            open_now = {name: servers[name].sessions for name in names if name in servers}
            busy = {name: count for name, count in open_now.items() if count}
            if not (busy or forgotten) or guard.monotonic() >= until:
                return busy
        wait(max(0.0, min(LOOK_EVERY, until - guard.monotonic())))


def _put_back(run: Run, options: Haproxy) -> list[str]:
    kept = run.kept("haproxy", dict[str, Ours])
    if not kept:
        return ["nothing was drained, so nothing is put back"]
    api = RuntimeApi(options.socket, run.end)
    servers = _there(api, run)
    lines = []
    for name, ours in kept.items():
        now = servers.get(name)
        if now is None:
            lines.append(f"{name} is not there any more")
        elif now.state == ours.found:
            lines.append(f"{name} is {ours.found} already")
        elif now.state not in (ours.set, "drain"):
            lines.append(f"{name} is {now.state} by somebody else's hand, and is left so")
        else:
            api.set(name, ours.found)
            lines.append(f"{name} is {ours.found} again")
    run.forget("haproxy")
    return lines


def _there(api: RuntimeApi, run: Run) -> dict[str, Server]:
    """After a reboot HAProxy may come up after the agent: it is waited for while there is time."""
    while True:
        try:
            return api.servers()
        except Unreachable:
            if not run.left():
                raise
        wait(LOOK_EVERY)


def _named(call: Call, options: Haproxy, servers: dict[str, Server]) -> tuple[list[str], list[str]]:
    """The servers that are meant; and a line on each peer that is none."""
    names: dict[str, None] = {}
    lines = []
    peers = [name for name in call.event.resources if name != call.machine]
    for said in options.servers():
        template = said.replace("{machine}", call.machine)
        every = [template.replace("{resource}", peer) for peer in peers]
        for name in every if "{resource}" in template else [template]:
            if name in servers:
                names[name] = None
            elif "{resource}" in template:
                lines.append(f"{name} is no server here")
            else:
                from forewarn.support.suggest import instead_of

                meant = instead_of(name, servers)
                raise Failure(f"nothing is drained: HAProxy has no server {name}; {meant}")
    return list(names), lines
