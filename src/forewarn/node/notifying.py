"""What a service manager cannot be told, the log is. `forewarn.notifying` has the rest."""

from __future__ import annotations

from typing import Any

from forewarn import notifying
from forewarn.logs import logger
from forewarn.notifying import MAX_STATUS, STATUS_EVERY, WATCH_SHARE

__all__ = ["MAX_STATUS", "STATUS_EVERY", "WATCH_SHARE", "Notifier"]

log = logger("forewarn")


class Notifier(notifying.Notifier):
    def _tell(self, level: str, says: str, **facts: Any) -> None:
        getattr(log, level)(says, **facts)
