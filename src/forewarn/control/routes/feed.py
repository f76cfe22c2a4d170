"""The feed in the control API: every change as a stream of server-sent events, and a long-poll for
clients that cannot use a stream.

There is one message for each commit, with the number of the commit. A client that sends the last
number it received resumes after it, across restarts of either side; if those changes have been
deleted, it gets a 410.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import msgspec
from litestar import Request, Response
from litestar.exceptions import NotAuthorizedException
from litestar.response import Stream

from forewarn.control.http.access.authorization import token_valid
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import ProblemError, RefusedError, parse_enum
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import Parameters
from forewarn.control.http.problems import BY_NAME, MEDIA_TYPE, problem_of
from forewarn.control.http.responses import ENDLESS
from forewarn.control.operations import feed as operations
from forewarn.control.schema import feed as f
from forewarn.control.schema import queries as q
from forewarn.control.views import feed as feed_views
from forewarn.core.history import RecordKind
from forewarn.core.refusal import conflict, invalid
from forewarn.service.engine.feed import Feed, FeedEntry, Lost, Progress

KEEP_ALIVE = 15.0  # seconds of guard time without a message after which a comment is sent
RECONNECT_AFTER = 1_000  # milliseconds that a disconnected client should wait
MAX_STREAMS = 1_024  # streams and long-polls at a time
MAX_STREAMS_OF_ONE = 256  # of these under one token
MAX_STREAMS_LIMITED = 768  # of these under tokens that are limited to groups; the rest is reserved
MAX_STREAMS_OF_ONE_LIMITED = 64  # of these under one of them
MAX_CHANGES = 10_000  # changes in it, unless a single page of commits has more
SENT_AT_ONCE = 64 * 1024  # bytes of a message that are sent at a time
THREAD_FROM = 500  # changes in a commit above which it is encoded in a thread

EVENT_STREAM = "text/event-stream"

Keep: TypeAlias = Callable[[f.FeedChange], bool]
KeepProgress: TypeAlias = Callable[[Progress], bool]

_encode = msgspec.json.Encoder().encode


@route(operations.FOLLOW_FEED, media_type=EVENT_STREAM)
async def follow_feed(
    request: Request[Any, Any, Any], call: Call, given: Parameters[q.FeedQuery]
) -> Stream:
    """The first message is a `hello`; then there is a `change` for each commit, with the number of
    the commit as its id. The header `Last-Event-ID` takes precedence over `after`. See
    "The feed" in the documentation."""
    cursor = _resume_after(request.headers.get("last-event-id"), given.after)
    keep = _filter(call, given.group, given.what)

    def keep_progress(progress: Progress) -> bool:
        visible = given.group in (None, progress.group) and call.sees(progress.group)
        return visible and not given.what

    feed, streams = context().feed, context().open_streams
    _check_capacity(feed, streams, call)
    start = feed.seq if cursor is None else cursor
    first = await _first_entries(feed, start)
    request.scope["state"][ENDLESS] = True
    return Stream(
        _messages(
            *(feed, start, first, keep, keep_progress),
            lambda: token_valid(call),
            _counted(streams, call),
        ),
        media_type=EVENT_STREAM,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


@route(operations.GET_CHANGES)
async def get_changes(call: Call, given: Parameters[q.ChangesQuery]) -> f.ChangesPage:
    """Pass `next` of the response as `after` of the next request. Without `after`, the response has
    no commits, and `next` is the newest commit."""
    after, keep = given.after, _filter(call, given.group, given.what)
    feed, streams = context().feed, context().open_streams
    if after is None:
        return f.ChangesPage(commits=[], next=feed.seq)
    _check_capacity(feed, streams, call)
    entries = await _first_entries(feed, after)
    with _counted(streams, call), feed.following(after):
        if not entries and given.wait:
            await feed.wait(after, given.wait)
            if not token_valid(call):
                raise NotAuthorizedException(f"token '{call.by}' is revoked or has expired")
    page = await _entries(feed, after, given.limit)
    commits = await asyncio.to_thread(_commit_views, page, keep)
    return f.ChangesPage(commits=commits, next=page[-1].seq if page else after)


def _resume_after(last: str | None, after: int | None) -> int | None:
    """Return the commit to resume after. When a browser reconnects, it sends Last-Event-ID in
    addition to the URL of its first request."""
    if last is None or not last.strip():
        return after
    if not last.isascii() or not last.strip().isdecimal() or len(last.strip()) > 18:
        raise RefusedError(
            invalid(f"Last-Event-ID: '{last[:40]}' is not the number of a commit, for example 42")
        )
    return int(last)


def _filter(call: CallContext, group: str | None, what: str | None) -> Keep | None:
    """Return a filter for the changes that the caller requests and may see; None: all of them. A
    token with a limit sees changes of its groups, and none that are not about a group."""
    names = [name.strip() for name in what.split(",") if name.strip()] if what else []
    kinds = {parse_enum(RecordKind, "kind of change", name).value for name in names}
    if not call.limited and group is None and not kinds:
        return None

    def keep(change: f.FeedChange) -> bool:
        return (
            group in (None, change.group)
            and (not kinds or change.what in kinds)
            and (not call.limited or (bool(change.group) and call.sees(change.group)))
        )

    return keep


def _check_capacity(feed: Feed, streams: Counter[str], call: CallContext) -> None:
    most = MAX_STREAMS_LIMITED if call.limited else MAX_STREAMS
    share = MAX_STREAMS_OF_ONE_LIMITED if call.limited else MAX_STREAMS_OF_ONE
    if feed.followers >= most:
        detail = f"there are already {most:,} followers of the feed; try again later"
    elif call.caller.token and streams[call.caller.token] >= share:
        detail = (
            f"there are already {share:,} followers with token '{call.by}', which is the limit for"
            " one token; end some, or give each program its own token"
        )
    else:
        return
    raise ProblemError("unavailable", detail, {"Retry-After": "10"})


@contextmanager
def _counted(streams: Counter[str], call: CallContext) -> Iterator[None]:
    """Count a stream or long-poll of the caller's token while it is open."""
    streams[call.caller.token] += 1
    try:
        yield
    finally:
        streams[call.caller.token] -= 1
        if not streams[call.caller.token]:
            del streams[call.caller.token]


async def _first_entries(feed: Feed, after: int) -> Sequence[FeedEntry]:
    """Return the first entries after a commit; raise if it is unknown or has been deleted."""
    if after > feed.seq:
        raise RefusedError(
            conflict(
                f"there is no commit {after} yet, the newest is {feed.seq}: a backup may have been"
                " restored; read the current state and follow from there"
            )
        )
    entries = await feed.read(after)
    if isinstance(entries, Lost):
        raise Pruned(after, entries.first)
    return entries


async def _entries(feed: Feed, after: int, limit: int) -> list[FeedEntry]:
    """Return up to `limit` entries, but not more changes than fit into one response."""
    page: list[FeedEntry] = []
    size = 0
    while len(page) < limit and size < MAX_CHANGES:
        entries = await feed.read(page[-1].seq if page else after)
        if isinstance(entries, Lost):
            if page:
                break  # the next request gets the 410
            raise Pruned(after, entries.first)
        if not entries:
            break
        page += entries[: limit - len(page)]
        size += sum(entry.size for entry in entries)
    return page


class Pruned(Exception):
    """Raised if the changes after a commit have been deleted with the old history."""

    def __init__(self, after: int, first: int) -> None:
        super().__init__(
            f"the changes after commit {after} have been deleted, the oldest commit is {first}:"
            " read the current state and follow from there"
        )
        self.first = first


def on_pruned(_request: object, error: Pruned) -> Response[f.FeedProblem]:
    problem = problem_of(BY_NAME["gone"], str(error))
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
    keep_progress: KeepProgress,
    may_continue: Callable[[], bool],
    counted: AbstractContextManager[None],
) -> AsyncIterator[bytes]:
    """Yield the messages of a stream. Between messages it holds only the number of the last one."""
    with counted, feed.following(cursor) as follower:
        hello = _encode(f.FeedHello(after=cursor, newest=feed.seq))
        yield b"retry: %d\nid: %d\nevent: hello\ndata: %b\n\n" % (RECONNECT_AFTER, cursor, hello)
        report = 0  # of progress: the latest that was sent
        while may_continue():
            skipped = 0  # number of the last commit, if the filter removed it
            for entry in page:
                message = await _message(entry, keep)
                if message is None:
                    skipped = entry.seq
                else:
                    skipped = 0
                    for start in range(0, len(message), SENT_AT_ONCE):
                        yield message[start : start + SENT_AT_ONCE]
                follower.seq = entry.seq
            if skipped:  # so that the client does not resume before it
                yield b"id: %d\n\n" % skipped
            page = ()
            report, latest = feed.progress_after(report)
            for progress in filter(keep_progress, latest):
                view = f.FeedProgress(**msgspec.structs.asdict(progress))
                yield b"event: progress\ndata: %b\n\n" % _encode(view)
            while not await feed.wait(follower.seq, KEEP_ALIVE, report):
                yield b": still here\n\n"
                if not may_continue():
                    return
            if feed.ended:
                yield b": the service stops\nretry: %d\n\n" % RECONNECT_AFTER
                return
            entries = await feed.read(follower.seq)
            if isinstance(entries, Lost):
                yield b"event: gone\ndata: %b\n\n" % _encode({"first": entries.first})
                return
            page = entries


async def _message(entry: FeedEntry, keep: Keep | None) -> bytes | None:
    if keep is None and entry.rendered is not None:
        return entry.rendered
    if entry.size > THREAD_FROM:
        return await asyncio.to_thread(_render, entry, keep)
    return _render(entry, keep)


def _render(entry: FeedEntry, keep: Keep | None) -> bytes | None:
    """Return the message of an entry, or None if the filter leaves nothing. Without a filter, the
    message is stored for other streams."""
    commit = feed_views.commit(entry.commit)
    if keep is not None:
        commit = feed_views.filtered(commit, keep)
        if not commit.changes:
            return None
    message = b"id: %d\nevent: change\ndata: %b\n\n" % (entry.seq, _encode(commit))
    if keep is None:
        entry.rendered = message
    return message


def _commit_views(page: Sequence[FeedEntry], keep: Keep | None) -> list[f.FeedCommit]:
    commits = [feed_views.commit(entry.commit) for entry in page]
    if keep is None:
        return commits
    filtered = [feed_views.filtered(commit, keep) for commit in commits]
    return [commit for commit in filtered if commit.changes]
