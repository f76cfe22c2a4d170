"""The hook `haproxy`: drains servers before an event, and enables them again after it.

Undo reverts only our own change: a state that somebody else has set in the meantime, or that a
reload has reset, stays as it is.
"""

from __future__ import annotations

import msgspec

from forewarn.agent.hooks.contract import Call, Failure, Run, wait
from forewarn.agent.hooks.haproxy_runtime_api import RuntimeApi, Server, State, Unreachable
from forewarn.agent.hooks.options import Haproxy, seconds
from forewarn.support import guard
from forewarn.support.text import SECOND, in_words

CHECK_EVERY = 0.2  # seconds between two checks for open sessions
BACK_WITHIN = 10.0  # seconds that a reload of HAProxy may take


class SavedState(msgspec.Struct, frozen=True):
    found: State  # before our change
    set: State  # the last that we set, or were about to


def act(run: Run, options: Haproxy) -> list[str]:
    return _drain(run, options) if run.call.stage == "prepare" else _restore(run, options)


def check(options: Haproxy) -> list[str]:
    api = RuntimeApi(options.socket)
    try:
        level, servers = api.level(), api.servers()
    except Failure as failure:
        return [str(failure)]
    from forewarn.support.suggest import instead_of  # rarely needed

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


def _drain(run: Run, options: Haproxy) -> list[str]:
    api = RuntimeApi(options.socket, run.end)
    servers = api.servers()
    names, lines = _servers(run.call, options, servers)
    saved = run.load("haproxy", dict[str, SavedState]) or {}
    busy: list[str] = []
    for name in names:
        found = saved[name].found if name in saved else servers[name].state
        if found == "maint":
            lines.append(f"{name} is in maintenance already, and is left there")
            continue
        saved.setdefault(name, SavedState(found, "drain"))  # we may have been here before
        busy.append(name)
    run.save("haproxy", saved)
    for name in busy:
        if servers[name].state == "ready":
            api.set(name, "drain")
    began = guard.monotonic()
    still = _wait_for_sessions(api, busy, run.at_most(seconds(options.drain)))
    waited = round((guard.monotonic() - began) * 10) * SECOND // 10
    after = f" after {in_words(waited)}" if waited else ""
    if options.then == "maint":
        run.save("haproxy", saved | {name: SavedState(saved[name].found, "maint") for name in busy})
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


def _wait_for_sessions(api: RuntimeApi, names: list[str], until: float) -> dict[str, int]:
    """Wait until no session is open or the time is up; return the number of open ones by server."""
    reachable_until = guard.monotonic() + BACK_WITHIN
    while True:
        try:
            servers = api.servers()
            forgotten = [n for n in names if n in servers and servers[n].state == "ready"]
            for name in forgotten:  # by a reload
                api.set(name, "drain")
        except Unreachable:
            if guard.monotonic() >= min(until, reachable_until):
                raise
        else:
            reachable_until = guard.monotonic() + BACK_WITHIN
            open_now = {name: servers[name].sessions for name in names if name in servers}
            busy = {name: count for name, count in open_now.items() if count}
            if not (busy or forgotten) or guard.monotonic() >= until:
                return busy
        wait(max(0.0, min(CHECK_EVERY, until - guard.monotonic())))


def _restore(run: Run, options: Haproxy) -> list[str]:
    saved = run.load("haproxy", dict[str, SavedState])
    if not saved:
        return ["nothing was drained, so nothing is put back"]
    api = RuntimeApi(options.socket, run.end)
    servers = _wait_for_haproxy(api, run)
    lines = []
    for name, ours in saved.items():
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


def _wait_for_haproxy(api: RuntimeApi, run: Run) -> dict[str, Server]:
    """Return the servers, waiting for HAProxy while there is time: it may start after the agent."""
    while True:
        try:
            return api.servers()
        except Unreachable:
            if not run.left():
                raise
        wait(CHECK_EVERY)


def _servers(
    call: Call, options: Haproxy, servers: dict[str, Server]
) -> tuple[list[str], list[str]]:
    """Return the servers to drain, and a line on each peer that is not a server."""
    names: dict[str, None] = {}
    lines = []
    peers = [name for name in call.event.resources if name != call.machine]
    for pattern in options.servers():
        template = pattern.replace("{machine}", call.machine)
        every = [template.replace("{resource}", peer) for peer in peers]
        for name in every if "{resource}" in template else [template]:
            if name in servers:
                names[name] = None
            elif "{resource}" in template:
                lines.append(f"{name} is no server here")
            else:
                from forewarn.support.suggest import instead_of

                help = instead_of(name, servers)
                raise Failure(f"nothing is drained: HAProxy has no server {name}; {help}")
    return list(names), lines
