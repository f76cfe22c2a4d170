"""A metadata worker: the guests' endpoint on sockets of its own, and a connection to the control
process. It has no store and no control API, and makes no decisions.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.metadata.endpoint.callers import Callers
from forewarn.metadata.endpoint.recorder import Recorder
from forewarn.metadata.publishing.remote_upstream import RemoteUpstream
from forewarn.node.component import Component
from forewarn.node.config import Config
from forewarn.node.listening.serve import serve_guests
from forewarn.node.processes.worker_marks import WorkerMark
from forewarn.node.processes.worker_socket import make_dial
from forewarn.service.engine.clock import FollowedClock
from forewarn.service.telemetry.event_trace import FileEventTrace
from forewarn.store.engines import has_leadership, state_name
from forewarn.support import guard
from forewarn.support.logs import logger

if TYPE_CHECKING:
    from forewarn.metadata.http.front import Front

log = logger("forewarn")


class Worker(Component):
    """A worker. When its context is entered, it knows the fleet and accepts connections; but if
    several processes share the state, only once the control process decides."""

    def __init__(self, config: Config, number: int, listeners: Sequence[socket.socket]) -> None:
        super().__init__()
        assert config.upstream is not None
        self.config = config
        self.number = number
        self._listeners = listeners
        mark = WorkerMark(config.upstream, number)
        self._stack.callback(mark.close)
        dial = make_dial(config.upstream, mark)
        self._may_follow = has_leadership(config.state)
        self.upstream = RemoteUpstream(
            *(dial, number, FollowedClock(), state_name(config.state)),
            control_may_follow=self._may_follow,
        )
        callers = Callers(config.identity, config.speak_as)
        held = self.upstream.held if self._may_follow else None
        self.endpoint = MetadataApp(self.upstream, callers, config.limits, held)
        self._callers = callers
        self.front: Front | None = None
        self.outlived = True  # another process will answer on these sockets after this one

    async def _start(self) -> None:
        tasks = guard.Tasks(_log_failed_task)
        self._stack.push_async_callback(tasks.end)
        app: Any = self.endpoint
        if self.config.record is not None:
            trace = FileEventTrace(self.config.record, self.config.rules)
            self._stack.callback(trace.close)
            app = Recorder(self.endpoint, self._callers, self.upstream, trace)
        # Not in `tasks`: if the control process refuses this worker, the caller gets the error.
        self.following = asyncio.ensure_future(self.upstream.run())  # noqa: TID251
        self._stack.callback(self.following.cancel)
        tasks.start(self.upstream.report(), "reporter")
        if self._may_follow:
            tasks.start(self._serve(app, tasks), "serving")
        else:
            await self._serve(app, tasks)
            if self.following.done():
                await self.following  # raises why it has ended

    async def _serve(self, app: Any, tasks: guard.Tasks) -> None:
        """Serve guests once the groups are known, unless the control process refuses us."""
        synchronized = tasks.start(self.upstream.synchronized.wait(), "waiting for the groups")
        await asyncio.wait([synchronized, self.following], return_when=asyncio.FIRST_COMPLETED)
        if self.following.done():
            return
        guests = await serve_guests(
            *(self.config, app, self.endpoint, self._listeners, tasks, self._stack),
            outlived=lambda: self.outlived,
        )
        self.front = guests.front
        self.upstream.readings = lambda: self.endpoint.counts.readings(
            self.endpoint.connections.total, self.front
        )


def _log_failed_task(name: str, error: BaseException) -> None:
    log.error("a background task failed", task=name, exc_info=error)
