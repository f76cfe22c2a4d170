"""Every change as it happens: a stream of server-sent events, and a long poll for clients that
cannot use one.

One message per commit, numbered as the commits are. A client that names the last one it received
resumes after it, across restarts of either side; if that is not possible, it gets a 410.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, Any, TypeAlias

import msgspec
from litestar import Request, Response, get
from litestar.params import QueryParameter
from litestar.response import Stream

from forewarn.control.http.authorization import still
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import ProblemError, RefusedError, named
from forewarn.control.http.operation import Operation
from forewarn.control.http.parameters import ByGroup, ByWhat
from forewarn.control.http.problems import BY_NAME, MEDIA_TYPE, described
from forewarn.control.http.responses import ENDLESS
from forewarn.control.schema import feed as f
from forewarn.control.views import feed as feed_views
from forewarn.core.history import What
from forewarn.core.refusal import conflict, invalid
from forewarn.service.engine.feed import Feed, FeedEntry, Lost

KEEP_ALIVE = 15.0  # seconds of guard time after which a stream that has nothing to say says so
COME_BACK = 1_000  # milliseconds after which a client that was cut off is to come back
MAX_STREAMS = 1_024  # streams and long-polls at a time
MAX_STREAMS_OF_ONE = 256  # of these under one token
MAX_CHANGES_WAIT = 60  # seconds that a long-poll lasts at most
MAX_COMMITS = 1_000  # commits in one answer to a long-poll
MAX_CHANGES = 10_000  # changes in it, unless a single page of commits has more
SENT_AT_ONCE = 64 * 1024  # bytes of a message that are sent at a time
ASIDE = 500  # changes in a commit from which on it is put into bytes in a thread
MAX_SEQ = 10**18 - 1

EVENT_STREAM = "text/event-stream"

Keep: TypeAlias = Callable[[f.FeedChange], bool]

_encode = msgspec.json.Encoder().encode


@get(
    "/v1/feed",
    media_type=EVENT_STREAM,
    **Operation(
        id="followFeed",
        tag="feed",
        summary="Stream every change as it happens, as server-sent events",
        respects_limits=True,
        refuses=(409, 410, 503),
        commands=("feed",),
        command_example="feed",
    ).options,
)
async def follow_feed(
    request: Request[Any, Any, Any],
    call: Call,
    after: Annotated[
        int | None,
        QueryParameter(
            ge=0, le=MAX_SEQ, description="The commit to go on behind; from now on, if left out."
        ),
    ] = None,
    group: ByGroup = None,
    what: ByWhat = None,
) -> Stream:
    """Server-sent events: a `hello`, then a `change` for each commit, with its number as id."""
    cursor = _resumed(request.headers.get("last-event-id"), after)
    keep = _filter(call, group, what)
    feed, held = context().feed, context().open_streams
    _check_capacity(feed, held, call)
    begins = feed.seq if cursor is None else cursor
    first = await _first_entries(feed, begins)
    request.scope["state"][ENDLESS] = True
    return Stream(
        _messages(feed, begins, first, keep, lambda: still(call), _holding(held, call)),
        media_type=EVENT_STREAM,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


@get(
    "/v1/changes",
    **Operation(
        id="getChanges",
        tag="feed",
        summary="Get what came after a commit, waiting for it if need be",
        respects_limits=True,
        refuses=(409, 410, 503),
    ).options,
)
async def get_changes(
    call: Call,
    after: Annotated[
        int | None, QueryParameter(ge=0, le=MAX_SEQ, description="The commit to go on behind.")
    ] = None,
    wait: Annotated[
        int,
        QueryParameter(
            ge=0,
            le=MAX_CHANGES_WAIT,
            description="How many seconds to wait if there is nothing yet.",
        ),
    ] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_COMMITS)] = 100,
    group: ByGroup = None,
    what: ByWhat = None,
) -> f.ChangesPage:
    """What came after a commit, waiting for it if there is nothing yet. Without `after`: only
    where to begin."""
    keep, feed, held = _filter(call, group, what), context().feed, context().open_streams
    if after is None:
        return f.ChangesPage(commits=[], next=feed.seq)
    _check_capacity(feed, held, call)
    found = await _first_entries(feed, after)
    with _holding(held, call), feed.following(after):
        if not found and wait:
            await feed.wait(after, wait)
    page = await _entries(feed, after, limit)
    commits = await asyncio.to_thread(_shown, page, keep)
    return f.ChangesPage(commits=commits, next=page[-1].seq if page else after)


def _resumed(last: str | None, after: int | None) -> int | None:
    """Return where to resume: a browser that reconnects sends Last-Event-ID with its first URL."""
    if last is None or not last.strip():
        return after
    if not last.isascii() or not last.strip().isdecimal() or len(last.strip()) > 18:
        raise RefusedError(
            invalid(f"Last-Event-ID: '{last[:40]}' is no number of a commit, for example 42")
        )
    return int(last)


def _filter(call: CallContext, group: str | None, what: str | None) -> Keep | None:
    """Return a filter for the changes that the caller wants and may see; None: all. A limited
    caller sees what happens to its groups, and nothing that is about no group."""
    names = [name.strip() for name in what.split(",") if name.strip()] if what else []
    kinds = {named(What, "kind of change", name).value for name in names}
    if not call.limited and group is None and not kinds:
        return None

    def keep(change: f.FeedChange) -> bool:
        return (
            group in (None, change.group)
            and (not kinds or change.what in kinds)
            and (not call.limited or (bool(change.group) and call.sees(change.group)))
        )

    return keep


def _check_capacity(feed: Feed, held: Counter[str], call: CallContext) -> None:
    if feed.followers >= MAX_STREAMS:
        detail = f"{MAX_STREAMS:,} follow the feed already; come back later"
    elif call.caller.token and held[call.caller.token] >= MAX_STREAMS_OF_ONE:
        detail = (
            f"{MAX_STREAMS_OF_ONE:,} follow the feed under token '{call.by}' already, which is the"
            " share of one; end some, or give each program a token of its own"
        )
    else:
        return
    raise ProblemError("unavailable", detail, {"Retry-After": "10"})


@contextmanager
def _holding(held: Counter[str], call: CallContext) -> Iterator[None]:
    held[call.caller.token] += 1
    try:
        yield
    finally:
        held[call.caller.token] -= 1
        if not held[call.caller.token]:
            del held[call.caller.token]


async def _first_entries(feed: Feed, after: int) -> Sequence[FeedEntry]:
    """Return the first entries after this commit, or raise if it is unknown or forgotten."""
    if after > feed.seq:
        raise RefusedError(
            conflict(
                f"there is no commit {after} yet, the newest is {feed.seq}: the state may be a copy"
                " that was restored; read everything anew and follow from there"
            )
        )
    found = await feed.read(after)
    if isinstance(found, Lost):
        raise Gone(after, found.first)
    return found


async def _entries(feed: Feed, after: int, limit: int) -> list[FeedEntry]:
    """Return up to `limit` entries, but not more changes than fit into one response."""
    page: list[FeedEntry] = []
    size = 0
    while len(page) < limit and size < MAX_CHANGES:
        found = await feed.read(page[-1].seq if page else after)
        if isinstance(found, Lost):
            if page:
                break  # the next request gets the 410
            raise Gone(after, found.first)
        if not found:
            break
        page += found[: limit - len(page)]
        size += sum(entry.size for entry in found)
    return page


class Gone(Exception):
    """The commit to resume after has been deleted with the old history."""

    def __init__(self, after: int, first: int) -> None:
        super().__init__(
            f"what came after commit {after} is no longer there, the oldest that is kept is"
            f" {first}: read everything anew and follow from there"
        )
        self.first = first


def gone(_request: object, error: Gone) -> Response[f.FeedProblem]:
    problem = described(BY_NAME["gone"], str(error))
    return Response(
        f.FeedProblem(**msgspec.structs.asdict(problem), first=error.first),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
    )


async def _messages(
    feed: Feed,
    cursor: int,
    page: Sequence[FeedEntry],
    keep: Keep | None,
    allowed: Callable[[], bool],
    holding: AbstractContextManager[None],
) -> AsyncIterator[bytes]:
    """Yield the messages of a stream; only the number of the last one sent is kept in between."""
    with holding, feed.following(cursor) as follower:
        hello = _encode(f.FeedHello(after=cursor, newest=feed.seq))
        yield b"retry: %d\nid: %d\nevent: hello\ndata: %b\n\n" % (COME_BACK, cursor, hello)
        while allowed():
            passed = 0
            for entry in page:
                message = await _message(entry, keep)
                if message is None:
                    passed = entry.seq
                else:
                    passed = 0
                    for start in range(0, len(message), SENT_AT_ONCE):
                        yield message[start : start + SENT_AT_ONCE]
                follower.seq = entry.seq
            if passed:  # nothing for this one, but it need not ask for it again
                yield b"id: %d\n\n" % passed
            page = ()
            while not await feed.wait(follower.seq, KEEP_ALIVE):
                yield b": still here\n\n"
                if not allowed():
                    return
            if feed.ended:
                yield b": the service stops\nretry: %d\n\n" % COME_BACK
                return
            found = await feed.read(follower.seq)
            if isinstance(found, Lost):
                yield b"event: gone\ndata: %b\n\n" % _encode({"first": found.first})
                return
            page = found


async def _message(entry: FeedEntry, keep: Keep | None) -> bytes | None:
    if keep is None and entry.rendered is not None:
        return entry.rendered
    if entry.size > ASIDE:
        return await asyncio.to_thread(_render, entry, keep)
    return _render(entry, keep)


def _render(entry: FeedEntry, keep: Keep | None) -> bytes | None:
    """Encode an entry, and keep it for other streams; or what the filter leaves, if anything."""
    shown = feed_views.commit(entry.commit)
    if keep is not None:
        shown = feed_views.only(shown, keep)
        if not shown.changes:
            return None
    message = b"id: %d\nevent: change\ndata: %b\n\n" % (entry.seq, _encode(shown))
    if keep is None:
        entry.rendered = message
    return message


def _shown(page: Sequence[FeedEntry], keep: Keep | None) -> list[f.FeedCommit]:
    shown = [feed_views.commit(entry.commit) for entry in page]
    if keep is None:
        return shown
    return [left for one in shown if (left := feed_views.only(one, keep)).changes]
