"""The hook `haproxy`: drains servers before an event, and enables them again after it.

Undo reverts only the change of this hook: a state that someone else has set in the meantime, or
that a reload has reset, is not changed.
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
    """The states of a server, saved for undo."""

    before: State = msgspec.field(name="found")  # before the hook changed it
    applied: State = msgspec.field(name="set")  # that the hook has set last, or is about to set


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
            f"{options.socket} does not allow changing the state of servers (level"
            f" {level or 'unknown'}); add `level admin` to its `stats socket` line"
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
    drained: list[str] = []
    for name in names:
        before = saved[name].before if name in saved else servers[name].state
        if before == "maint":
            lines.append(f"{name} is already in maintenance and is not changed")
            continue
        saved.setdefault(name, SavedState(before, "drain"))  # unless saved by an earlier attempt
        drained.append(name)
    run.save("haproxy", saved)
    for name in drained:
        if servers[name].state == "ready":
            api.set(name, "drain")
    began = guard.monotonic()
    sessions = _wait_for_sessions(api, drained, run.at_most(seconds(options.drain)))
    waited = round((guard.monotonic() - began) * 10) * SECOND // 10
    after = f" after {in_words(waited)}" if waited else ""
    if options.then == "maint":
        maint = {name: SavedState(saved[name].before, "maint") for name in drained}
        run.save("haproxy", saved | maint)
        for name in drained:
            api.set(name, "maint")
    state = "in maintenance" if options.then == "maint" else "draining"
    for name in drained:
        lines.append(f"{name} is {state}, {_sessions(sessions.get(name, 0))} open{after}")
    return lines or ["none of the event's machines is a server of this HAProxy"]


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
            reset = [n for n in names if n in servers and servers[n].state == "ready"]
            for name in reset:  # by a reload
                api.set(name, "drain")
        except Unreachable:
            if guard.monotonic() >= min(until, reachable_until):
                raise
        else:
            reachable_until = guard.monotonic() + BACK_WITHIN
            open_now = {name: servers[name].sessions for name in names if name in servers}
            busy = {name: count for name, count in open_now.items() if count}
            if not (busy or reset) or guard.monotonic() >= until:
                return busy
        wait(max(0.0, min(CHECK_EVERY, until - guard.monotonic())))


def _restore(run: Run, options: Haproxy) -> list[str]:
    saved = run.load("haproxy", dict[str, SavedState])
    if not saved:
        return ["nothing was drained, so nothing is restored"]
    api = RuntimeApi(options.socket, run.end)
    servers = _wait_for_haproxy(api, run)
    lines = []
    for name, state in saved.items():
        server = servers.get(name)
        if server is None:
            lines.append(f"{name} no longer exists")
        elif server.state == state.before:
            lines.append(f"{name} is already {state.before}")
        elif server.state not in (state.applied, "drain"):
            lines.append(f"{name} was set to {server.state} by someone else and is not changed")
        else:
            api.set(name, state.before)
            lines.append(f"{name} is {state.before} again")
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
        peer_servers = [template.replace("{resource}", peer) for peer in peers]
        for name in peer_servers if "{resource}" in template else [template]:
            if name in servers:
                names[name] = None
            elif "{resource}" in template:
                lines.append(f"{name} is not a server of this HAProxy")
            else:
                from forewarn.support.suggest import instead_of

                help = instead_of(name, servers)
                raise Failure(f"nothing was drained: HAProxy has no server {name}; {help}")
    return list(names), lines
