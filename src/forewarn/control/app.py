"""The control API: HTTP in, verbs of the platform, shapes of `schema` out. Decides nothing.

Problems are RFC 9457. What may come in at all is `doorway.py`; the handlers stand in rooms of
their own, by subject.
"""

from __future__ import annotations

from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException

from forewarn.control import (
    backup,
    clock,
    events,
    faults,
    feed,
    fleet,
    happenings,
    health,
    history,
    machines,
    page,
    rollouts,
    status,
    tokens,
    verdict,
)
from forewarn.control.access import decided
from forewarn.control.answers import (
    MAX_BODY,
    ProblemError,
    RefusedError,
    http_problem,
    not_stored,
    refused,
    refused_here,
    surprise,
)
from forewarn.control.asking import asking
from forewarn.control.calls import Calls
from forewarn.control.desk import Desk
from forewarn.control.doorway import Doorway
from forewarn.control.envelope import Envelope, Numbered
from forewarn.control.idempotency import Keys, Replayed, replayed
from forewarn.control.parameters import known_only
from forewarn.store.port import StoreFailed

ROOMS = (
    status,
    clock,
    machines,
    events,
    happenings,
    fleet,
    history,
    rollouts,
    backup,
    tokens,
    faults,
    verdict,
    feed,
    health,
    page,
)


def create(desk: Desk) -> Litestar:
    keys = Keys(desk)
    app = Litestar(
        [handler for room in ROOMS for handler in room.handlers(desk)],
        guards=[decided],
        before_request=known_only,
        request_max_body_size=MAX_BODY,
        dependencies={"ask": Provide(asking(desk, keys))},
        logging_config=None,
        exception_handlers={
            RefusedError: refused,
            feed.Gone: feed.gone,
            ProblemError: refused_here,
            Replayed: replayed,
            StoreFailed: not_stored,
            HTTPException: http_problem,
            Exception: surprise,
        },
        openapi_config=None,  # which would load pages from elsewhere: ours is `page.py`
    )
    app.asgi_handler = Numbered(Calls(Doorway(Envelope(app.asgi_handler, keys), desk), desk))
    return app
