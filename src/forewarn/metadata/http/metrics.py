"""The endpoint in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.service.telemetry.samples import Kind, Sample

if TYPE_CHECKING:
    from forewarn.metadata.http.front import Front


def readings(app: MetadataApp, front: Front | None) -> list[Sample]:
    polls = [((v, str(status)), n) for v, status, n in app.counts.by_version_and_status()]
    hits = [((limit,), n) for limit, n in sorted(app.counts.hits.items())]
    return [
        Sample(
            "forewarn_polls",
            "Documents answered, by api-version and status",
            Kind.COUNTER,
            ("api_version", "status"),
            polls,
        ),
        Sample(
            "forewarn_refusals",
            "Guests' requests that were refused, by status",
            Kind.COUNTER,
            ("status",),
            [((str(status),), n) for status, n in sorted(app.counts.refused.items())],
        ),
        Sample(
            "forewarn_limit_hits",
            "How often a caller reached a limit, by the name of its setting",
            Kind.COUNTER,
            ("limit",),
            hits,
        ),
        Sample(
            "forewarn_connections",
            "Connections that are held for callers",
            Kind.GAUGE,
            (),
            [((), app.crowd.total)],
        ),
        Sample(
            "forewarn_front_answers",
            "Polls that were answered the short way",
            Kind.COUNTER,
            (),
            [((), front.answered if front else 0)],
        ),
        Sample(
            "forewarn_front_handovers",
            "Connections that were handed to the long way",
            Kind.COUNTER,
            (),
            [((), front.handed_over if front else 0)],
        ),
    ]
