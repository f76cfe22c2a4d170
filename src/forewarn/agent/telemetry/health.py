"""The agent's health.

*Healthy*: it works at all; if not, a restart is the remedy, and systemd's watchdog goes by that.
*Ready*: it can do its job; if not, the cause lies elsewhere (an endpoint that does not answer, a
full disk), and a restart would not help.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from forewarn.agent.telemetry.status import AgentStatus
from forewarn.client.events import EndpointStatus
from forewarn.support import guard

BEAT = 5.0  # seconds between two heartbeats of the event loop
LOOP_PATIENCE = 30.0  # seconds without a heartbeat after which the loop counts as blocked
POLL_PATIENCE = 180.0  # seconds without a request to the endpoint; a first answer may take 130
SILENCE_PATIENCE = 30.0  # seconds that the endpoint may be silent
WRITE_EVERY = 30.0  # seconds between two tests whether the state directory is writable

PROBE = ".writable"


class AgentHealth:
    """`endpoint` returns the client's status. `polling` returns whether the agent polls already:
    before that it asks for its identity, for as long as it takes."""

    def __init__(
        self,
        endpoint: Callable[[], EndpointStatus],
        state: Path | None,
        polling: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = guard.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._polling = polling
        self._state = state  # None: there is none
        self._clock = clock
        self._beat_at = self._requested_at = clock()
        self._requests = -1  # so far
        self._write_test: tuple[float, str] | None = None  # when it was made, and the problem

    async def keep_beating(self) -> None:
        while True:
            self.beat()
            await guard.pause(BEAT)

    def beat(self) -> None:
        self._beat_at = self._clock()
        status = self._endpoint()
        requests = status.responses + status.failures
        if requests != self._requests or not self._polling():
            self._requests, self._requested_at = requests, self._beat_at

    def health_problems(self) -> dict[str, str]:
        """Return what is wrong with each part of the agent itself; empty for what is not."""
        now = self._clock()
        blocked, quiet = now - self._beat_at, now - self._requested_at
        loop = f"the event loop has been blocked for {blocked:.0f} s"
        polls = f"no request has been sent for {quiet:.0f} s"
        return {
            "loop": loop if blocked > LOOP_PATIENCE else "",
            "polls": polls if quiet > POLL_PATIENCE else "",
        }

    def readiness_problems(self, status: AgentStatus) -> dict[str, str]:
        """Return what keeps the agent from doing its job, by part; empty for what does not."""
        return {
            **self.health_problems(),
            "endpoint": _endpoint_problem(status),
            "identity": "" if status.machine else "the name of this machine is not known yet",
            "state": self.state_problem(),
        }

    def first_problem(self) -> str:
        """Return the first part that is not healthy and why, for the watchdog."""
        problems = self.health_problems().items()
        return next((f"{part}: {problem}" for part, problem in problems if problem), "")

    def state_problem(self) -> str:
        """Return what is wrong with the state directory. Now and then a file is really written."""
        now = self._clock()
        if self._state is None:
            return ""
        if self._write_test is None or now - self._write_test[0] >= WRITE_EVERY:
            self._write_test = now, _write_problem(self._state)
        return self._write_test[1]


def _endpoint_problem(status: AgentStatus) -> str:
    endpoint = status.endpoint
    if endpoint.endpoint is None:
        return "no endpoint has been found"
    if not status.events and not endpoint.responses:
        return "the endpoint has not answered yet"
    if status.silence > SILENCE_PATIENCE:
        return f"no valid answer for {status.silence:.0f} s: {endpoint.problem}"
    return ""


def _write_problem(directory: Path) -> str:
    probe = directory / PROBE
    try:
        probe.write_bytes(b"probe")
    except OSError as error:
        return f"the state directory is not writable: {error.strerror}"
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    return ""
