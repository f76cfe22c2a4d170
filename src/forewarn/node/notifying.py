"""What a service manager cannot be told, the log is. `forewarn.support.sd_notify` has the rest."""

from __future__ import annotations

from typing import Any

from forewarn.support import sd_notify
from forewarn.support.logs import logger
from forewarn.support.sd_notify import MAX_STATUS, STATUS_EVERY, WATCH_SHARE

__all__ = ["MAX_STATUS", "STATUS_EVERY", "WATCH_SHARE", "Notifier"]

log = logger("forewarn")


class Notifier(sd_notify.Notifier):
    def _tell(self, level: str, says: str, **facts: Any) -> None:
        getattr(log, level)(says, **facts)
