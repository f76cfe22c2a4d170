"""The api-versions of the scheduled events endpoint: one row says what a version shows and how.

Adding a version is adding a row. Nothing outside this file asks for a version by its name,
but for the newest.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_FIRST = ("Freeze", "Reboot", "Redeploy")


class Version(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    types: tuple[str, ...] = (*_FIRST, "Preempt", "Terminate")
    preview: bool = False
    """ISO 8601 times, a leading underscore on IaaS names, POST without the Metadata header."""
    description: bool = True
    event_source: bool = True
    duration: bool = True

    def resource(self, name: str, *, iaas: bool) -> str:
        """A machine's name as this version shows it."""
        return f"_{name}" if self.preview and iaas else name


VERSIONS: tuple[Version, ...] = (
    Version(
        name="2017-03-01",
        types=_FIRST,
        preview=True,
        description=False,
        event_source=False,
        duration=False,
    ),
    Version(name="2017-08-01", types=_FIRST, description=False, event_source=False, duration=False),
    Version(
        name="2017-11-01",
        types=(*_FIRST, "Preempt"),
        description=False,
        event_source=False,
        duration=False,
    ),
    Version(name="2019-01-01", description=False, event_source=False, duration=False),
    Version(name="2019-04-01", event_source=False, duration=False),
    Version(name="2019-08-01", duration=False),
    Version(name="2020-07-01"),
)

BY_NAME: Mapping[str, Version] = {version.name: version for version in VERSIONS}
NEWEST: Version = VERSIONS[-1]
