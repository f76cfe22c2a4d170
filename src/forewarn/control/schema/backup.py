"""What a copy of the state holds, as the API and the commands say it. Needs only msgspec."""

from __future__ import annotations

import msgspec

from forewarn.control.schema.types import Moment

HEADER = "Forewarn-Copy"  # of the answer that is the copy: this, as JSON
SQLITE = "application/vnd.sqlite3"


class BackupContents(msgspec.Struct, frozen=True, kw_only=True):
    schema: str
    commit: int  # the number of its last
    until: Moment | None = None  # the last instant it tells of
    copied_at: Moment | None = None
    groups: int
    machines: int
    active_events: int
    tokens: int  # of which it has digests, not the secrets
