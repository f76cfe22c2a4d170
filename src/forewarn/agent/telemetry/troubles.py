"""What is wrong at the moment: each is told once when it begins, and once when it is over, however
often it is met in between."""

from __future__ import annotations

from forewarn.agent.telemetry.log import Tell


class OngoingTroubles:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._now: dict[str, str] = {}

    def begin(self, about: str, says: str) -> None:
        if self._now.get(about) != says:
            self._now[about] = says
            self._tell("trouble", about=about, why=says)

    def lasts(self, about: str) -> bool:
        return about in self._now

    def end(self, about: str) -> None:
        if self._now.pop(about, None) is not None:
            self._tell("well again", about=about)
