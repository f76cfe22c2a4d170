"""What stands around a running agent: its health endpoint, its beat, and what a service manager is
told. None of it is needed to handle an event, so nothing that fails here stops the agent."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from forewarn.agent.agent import Agent
from forewarn.agent.config.address import ListenAddress, listens
from forewarn.agent.telemetry.health import BEAT, AgentHealth
from forewarn.agent.telemetry.http import StatusServer
from forewarn.agent.telemetry.log import Tell
from forewarn.agent.telemetry.metrics import AgentMetrics
from forewarn.agent.telemetry.status import picture_of
from forewarn.support import guard
from forewarn.support.sd_notify import Log, Notifier

LISTEN_AGAIN = 30.0  # seconds until an address that was taken is tried once more


@asynccontextmanager
async def attended(agent: Agent, counts: AgentMetrics, tell: Tell) -> AsyncIterator[None]:
    config = agent.config
    state = None if agent.dry else config.state
    wellbeing = AgentHealth(
        lambda: agent.client.standing, state, lambda: agent.identity is not None
    )
    face = StatusServer(lambda: picture_of(agent), wellbeing, counts)
    manager = Notifier.from_environment(os.environ, _manager_log(tell))
    tasks = guard.Tasks(lambda name, error: tell("trouble", about=name, why=repr(error)))
    try:
        tasks.start(wellbeing.keep_beating(), "beating")
        if config.listen:
            where = listens(config.listen, anywhere=config.listen_anywhere)
            tasks.start(_listen(face, where, tell), "listening")
        if manager.connected:
            manager.ready(_stands(agent))
            telling = manager.keep_notifying(lambda: _stands(agent), wellbeing.ailing, BEAT)
            tasks.start(telling, "telling the service manager")
        yield
    finally:
        manager.stopping()
        await tasks.end()
        await face.close()


def _manager_log(tell: Tell) -> Log:
    def log(level: str, message: str, /, **fields: Any) -> None:
        del level
        tell("trouble", about="manager", why=message, **_other(fields))

    return log


def _other(facts: dict[str, Any]) -> dict[str, Any]:
    return {("because" if name == "why" else name): value for name, value in facts.items()}


async def _listen(face: StatusServer, where: ListenAddress, tell: Tell) -> None:
    """An address that somebody else has is no reason to leave the machine alone."""
    said = ""
    while True:
        try:
            await face.listen(where)
        except OSError as error:
            why = f"{where}: {error.strerror or error}"
            if why != said:
                tell("trouble", about="listen", why=why)
            said = why
            await guard.pause(LISTEN_AGAIN)
        else:
            tell("listening", at=str(where if where.path or where.port else face.where))
            return


def _stands(agent: Agent) -> str:
    """For `systemctl status`, in one line."""
    stands = agent.client.standing
    if stands.endpoint is None:
        return "looking for the endpoint"
    if agent.identity is None:
        return f"asks {stands.endpoint} who this machine is"
    name = agent.identity.name
    if agent.looked is None:
        return f"{name}; {stands.endpoint}: {stands.trouble or 'not answered yet'}"
    events = len(agent.looked.document.events)
    handled = sum(case.open for case in agent.cases)
    trouble = f"; {stands.trouble} since {stands.since:%H:%M:%S}" if stands.trouble else ""
    dry = "; dry run" if agent.dry else ""
    return f"{name}; {events} events listed, {handled} handled; {stands.endpoint}{trouble}{dry}"
