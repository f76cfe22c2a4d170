"""Is the agent well? *Healthy*: it works at all; if not, starting it anew is the remedy, and
systemd's watchdog goes by that. *Ready*: it can do what it is there for; if not, the reason lies
elsewhere (an endpoint that does not answer, a full disk), and a restart would mend nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from forewarn.agent.telemetry.status import AgentStatus
from forewarn.client.status import EndpointStatus
from forewarn.support import guard

BEAT = 5.0  # seconds between two beats of the loop
LOOP_PATIENCE = 30.0  # seconds without one, after which the loop is said to stand still
LOOK_PATIENCE = 180.0  # seconds in which it has asked nothing; a first answer may take 130
SILENCE_PATIENCE = 30.0  # seconds that the endpoint may be silent
WRITE_EVERY = 30.0  # seconds between two tries whether the state directory takes a file

PROBE = ".writable"


class AgentHealth:
    """`standing` is how its client stands with its endpoint, `looking` whether it looks already:
    before that, it asks who it is, for as long as it takes."""

    def __init__(
        self,
        standing: Callable[[], EndpointStatus],
        state: Path | None,
        looking: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = guard.monotonic,
    ) -> None:
        self._standing = standing
        self._looking = looking
        self._state = state  # None: it keeps none
        self._clock = clock
        self._beat = self._asked_at = clock()
        self._asked = -1  # questions so far
        self._written: tuple[float, str] | None = None  # when, and what was wrong

    async def keep_beating(self) -> None:
        while True:
            self.beat()
            await guard.pause(BEAT)

    def beat(self) -> None:
        self._beat = self._clock()
        stands = self._standing()
        asked = stands.answers + stands.troubles
        if asked != self._asked or not self._looking():
            self._asked, self._asked_at = asked, self._beat

    def healthy(self) -> dict[str, str]:
        """What is wrong, by part; nothing, if all is well with it."""
        now = self._clock()
        stood, quiet = now - self._beat, now - self._asked_at
        return {
            "loop": f"it has stood still for {stood:.0f} s" if stood > LOOP_PATIENCE else "",
            "looks": f"nothing was asked for {quiet:.0f} s" if quiet > LOOK_PATIENCE else "",
        }

    def ready(self, picture: AgentStatus) -> dict[str, str]:
        return {
            **self.healthy(),
            "endpoint": _endpoint(picture),
            "identity": "" if picture.machine else "it does not know yet who this machine is",
            "state": self.unwritable(),
        }

    def ailing(self) -> str:
        """For the watchdog: the first part that is, and why."""
        return next((f"{part}: {says}" for part, says in self.healthy().items() if says), "")

    def unwritable(self) -> str:
        """What is wrong with the state directory. A file is really written, now and then."""
        now = self._clock()
        if self._state is None:
            return ""
        if self._written is None or now - self._written[0] >= WRITE_EVERY:
            self._written = now, _tried(self._state)
        return self._written[1]


def _endpoint(picture: AgentStatus) -> str:
    stands = picture.standing
    if stands.endpoint is None:
        return "none has been found"
    if not picture.events and not stands.answers:
        return "it has not answered yet"
    if picture.silence > SILENCE_PATIENCE:
        return f"no good answer for {picture.silence:.0f} s: {stands.trouble}"
    return ""


def _tried(directory: Path) -> str:
    probe = directory / PROBE
    try:
        probe.write_bytes(b"probe")
    except OSError as error:
        return f"it cannot be written: {error.strerror}"
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    return ""


def parts(said: dict[str, str]) -> dict[str, str]:
    """For whoever reads it: what is well says so."""
    return {part: says or "ok" for part, says in said.items()}
