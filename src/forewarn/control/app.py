"""The control API: HTTP in, verbs of the platform, shapes of `schema` out. Decides nothing.

Problems are RFC 9457. What may come in at all is `doorway.py`; the handlers stand in rooms of
their own, by subject.
"""

from __future__ import annotations

from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig

from forewarn import __version__
from forewarn.control import events, fleet, happenings, history, machines, rollouts, status
from forewarn.control.answers import RefusedError, http_problem, not_stored, refused, surprise
from forewarn.control.desk import Desk, asking
from forewarn.control.doorway import admitted
from forewarn.store.port import StoreFailed

ROOMS = (status, machines, events, happenings, fleet, history, rollouts)


def create(desk: Desk) -> Litestar:
    return Litestar(
        [handler for room in ROOMS for handler in room.handlers(desk)],
        before_request=admitted,
        dependencies={"ask": Provide(asking(desk), sync_to_thread=False)},
        logging_config=None,
        exception_handlers={
            RefusedError: refused,
            StoreFailed: not_stored,
            HTTPException: http_problem,
            Exception: surprise,
        },
        openapi_config=OpenAPIConfig(title="forewarn control API", version=__version__),
    )
