"""A blocking client of the control API, for commands and tests; standard library only."""

from __future__ import annotations

import gzip
import http.client
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from email.message import Message
from functools import partial
from io import BufferedIOBase
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from forewarn.control.client import follow
from forewarn.control.client.connection import ControlError as ControlError
from forewarn.control.client.connection import ServiceAddress, error_text, unreachable
from forewarn.control.client.connection import Unreachable as Unreachable
from forewarn.control.operations import events as of_events
from forewarn.control.operations import faults as of_faults
from forewarn.control.operations import feed as of_feed
from forewarn.control.operations import fleet as of_fleet
from forewarn.control.operations import groups as of_groups
from forewarn.control.operations import halts as of_halts
from forewarn.control.operations import history as of_history
from forewarn.control.operations import hosts as of_hosts
from forewarn.control.operations import machines as of_machines
from forewarn.control.operations import maintenance as of_maintenance
from forewarn.control.operations import rollouts as of_rollouts
from forewarn.control.operations import service as of_service
from forewarn.control.operations import tokens as of_tokens
from forewarn.control.operations.operation import Operation
from forewarn.control.schema import core as s
from forewarn.control.schema import halts as h
from forewarn.control.schema import maintenance as m
from forewarn.control.schema import tokens as t
from forewarn.control.schema.feed import FeedCommit, HistoryRecord
from forewarn.control.schema.fleet import FleetDifference

if TYPE_CHECKING:
    from forewarn.verdict.verdict import Verdict

TIMEOUT = 60.0  # seconds
UNDER_WAY_TRIES = 30  # repetitions of a request that is under way after its connection broke
UNDER_WAY_PAUSE = 1.0  # seconds between repetitions
CONNECT_FIRST = 1.0  # seconds for a connection, while there are other control nodes to try
LEADER_TRIES = 120  # rounds in which all control nodes are asked which of them decides
LEADER_PAUSE = 0.5  # seconds between two rounds
TOKENS_PAGE = "1000"  # tokens in one response
READ_AT_ONCE = 64 * 1024  # bytes of an export or a backup

T = TypeVar("T")
Filter: TypeAlias = str | bool | int | None  # a query parameter; None: none is sent

KEY = "Idempotency-Key"
GZIP = {"Accept-Encoding": "gzip"}
_BROKEN = (ConnectionResetError, BrokenPipeError, http.client.HTTPException)
_PARAMETER = re.compile(r"\{\w+\}")
_NEXT = re.compile(r'<([^>]*)>; rel="next"')


class Method(Generic[T]):
    """An operation as a method of the client, with the arguments of `call`."""

    def __init__(self, operation: Operation[T]) -> None:
        self._operation = operation

    def __get__(self, client: ControlClient, _type: type[ControlClient]) -> Callable[..., T]:
        return partial(client.call, self._operation)


class ControlClient:
    """The operations of the control API, with `call`, and those that are used most as methods.
    Raises ControlError."""

    def __init__(self, where: str | ServiceAddress) -> None:
        address = ServiceAddress(where) if isinstance(where, str) else where
        self._addresses = address.each()  # the one that is asked first, and then the others
        self.on_wait: Callable[[], None] = lambda: None  # called once, if nobody decides
        self.timeout: float | None = TIMEOUT  # seconds; None: none
        self.clock_header: s.ClockHeader | None = None  # of the last response; None: real time

    @property
    def url(self) -> str:
        """The URL of the control node that is asked."""
        return self._addresses[0].full_url()

    def _turn(self, leader: str = "") -> None:
        """Ask another control node from now on: the leader, if that is one of them. The token is
        sent to no other."""
        urls = [address.url for address in self._addresses]
        turns = urls.index(leader) if leader in urls else 1
        self._addresses = self._addresses[turns:] + self._addresses[:turns]

    status = Method(of_service.GET_STATUS)
    control_nodes = Method(of_service.GET_CONTROL_NODES)
    clock = Method(of_service.GET_CLOCK)
    notifications = Method(of_feed.GET_NOTIFICATIONS)
    changes = Method(of_feed.GET_CHANGES)
    history = Method(of_history.GET_HISTORY)
    machines = Method(of_machines.LIST_MACHINES)
    machine = Method(of_machines.GET_MACHINE)
    drift = Method(of_machines.LIST_DRIFT)
    evict_machine = Method(of_machines.EVICT_MACHINE)
    record_move = Method(of_machines.RECORD_MOVE)
    groups = Method(of_groups.LIST_GROUPS)
    group = Method(of_groups.GET_GROUP)
    set_policy = Method(of_groups.SET_POLICY)
    hosts = Method(of_hosts.LIST_HOSTS)
    host = Method(of_hosts.GET_HOST)
    maintain_host = Method(of_hosts.MAINTAIN_HOST)
    degrade_host = Method(of_hosts.DEGRADE_HOST)
    fail_host = Method(of_hosts.FAIL_HOST)
    event = Method(of_events.GET_EVENT)
    explain = Method(of_events.EXPLAIN_EVENT)
    schedule = Method(of_events.SCHEDULE_EVENT)
    approve = Method(of_events.APPROVE_EVENT)
    postpone = Method(of_events.POSTPONE_EVENT)
    cancel = Method(of_events.CANCEL_EVENT)
    cancel_events = Method(of_events.CANCEL_EVENTS)
    finish = Method(of_events.FINISH_EVENT)
    report_ready = Method(of_events.REPORT_READY)
    set_maintenance = Method(of_maintenance.SET_MAINTENANCE)
    remove_maintenance = Method(of_maintenance.REMOVE_MAINTENANCE)
    rollouts = Method(of_rollouts.LIST_ROLLOUTS)
    rollout = Method(of_rollouts.GET_ROLLOUT)
    start_rollout = Method(of_rollouts.START_ROLLOUT)
    plan_rollout = Method(of_rollouts.PLAN_ROLLOUT)
    pause_rollout = Method(of_rollouts.PAUSE_ROLLOUT)
    abort_rollout = Method(of_rollouts.ABORT_ROLLOUT)
    place_halt = Method(of_halts.PLACE_HALT)
    release_halt = Method(of_halts.RELEASE_HALT)
    fleet_progress = Method(of_fleet.GET_FLEET_PROGRESS)
    create_token = Method(of_tokens.CREATE_TOKEN)
    faults = Method(of_faults.LIST_FAULTS)

    def readiness(self) -> s.HealthReport:
        """Return whether each part of the service is ready. Not being ready is not an error."""
        _, _, content = self._send("GET", of_service.GET_READINESS.path, None, {})
        return self._decode(content, s.HealthReport)

    def events(self, *, limit: int = 100, **filters: Filter) -> list[s.Event]:
        """Return the active events that match the parameters of `GET /v1/events`, and at most
        `limit` that are over."""
        events: list[s.Event] = []
        for event in self.pages(of_events.LIST_EVENTS, **filters):
            limit -= event.ended_at is not None
            if limit < 0:
                break
            events.append(event)
        return events

    def maintenance(self) -> list[m.Maintenance]:
        return list(self.pages(of_maintenance.LIST_MAINTENANCE))

    def halts(self) -> list[h.Halt]:
        return list(self.pages(of_halts.LIST_HALTS))

    def tokens(self) -> list[t.Token]:
        return list(self.pages(of_tokens.LIST_TOKENS, limit=TOKENS_PAGE))

    def verdict(self, machine: str | None = None, event: str | None = None) -> Verdict:
        from forewarn.control.operations.verdict import GET_VERDICT

        return self.call(GET_VERDICT, machine=machine, event=event)

    def forget_verdict(self) -> Verdict:
        from forewarn.control.operations.verdict import FORGET_VERDICT

        return self.call(FORGET_VERDICT)

    def apply(
        self, text: bytes, *, if_match: str | None = None, **query: Filter
    ) -> FleetDifference:
        """Apply a fleet file, or plan it, with the parameters of `PUT /v1/fleet`."""
        headers = {"If-Match": f'"{if_match}"'} if if_match else {}
        path = of_fleet.PUT_FLEET.path
        return self._call("PUT", path, FleetDifference, msgspec.Raw(text), query, headers)

    def advance(self, request: s.AdvanceRequest) -> s.Clock:
        """Advance a virtual clock, and wait for everything that becomes due, however long it
        takes."""
        timeout, self.timeout = self.timeout, None
        try:
            return self.call(of_service.ADVANCE_CLOCK, request)
        finally:
            self.timeout = timeout

    def play(self, request: s.PlayRequest) -> s.Clock:
        """Play the clock forward, with as many requests as that takes."""
        to = request.to or self.clock().now + timedelta(seconds=request.by or 0.0)
        while True:
            clock = self.call(of_service.PLAY_CLOCK, request)
            if clock.now >= to:
                return clock
            request = msgspec.structs.replace(request, by=None, to=to)

    def last_records(self, query: Mapping[str, str | None], limit: int) -> list[HistoryRecord]:
        """Return the last `limit` matching records, the newest last."""
        records: list[HistoryRecord] = []
        before: str | None = None
        while len(records) < limit:
            size = str(min(limit - len(records), 1_000))
            page = self.history(**{**query, "limit": size, "before": before})
            records += page.records
            if not page.next:
                break
            before = page.next
        return records[::-1]

    def history_after(
        self, query: Mapping[str, str | None], seq: int, limit: int | None
    ) -> Iterator[HistoryRecord]:
        """Yield the matching records with a number higher than `seq`, ordered by number."""
        remaining = limit
        after = str(seq)
        while after and remaining != 0:
            size = str(min(remaining or 1_000, 1_000))
            page = self.history(**{**query, "limit": size, "after_seq": after})
            yield from page.records
            after = page.next
            remaining = None if remaining is None else remaining - len(page.records)

    def history_lines(self, query: Mapping[str, str | None]) -> Iterator[bytes]:
        """Yield all matching records as JSON lines, the oldest first."""
        connection = self._reachable()
        try:
            target = _target("/v1/history/export", query)
            response = self._response(connection, target, GZIP)
            body = _body(response)
            if response.status >= 400:
                raise self._refusal(response.status, "/v1/history/export", body.read())
            yield from _lines(body)
        except (OSError, EOFError, http.client.HTTPException, ValueError) as error:
            raise ControlError(
                f"the response of {self.url} broke off: {error_text(error)}"
            ) from error
        finally:
            connection.close()

    def follow(
        self,
        after: int | None = None,
        query: Mapping[str, str | None] | None = None,
        on_interruption: Callable[[str], None] = lambda _: None,
    ) -> Iterator[FeedCommit]:
        """Yield every commit from now on, or after a commit, once and in order, across restarts of
        the service. `on_interruption` is called with the reason before it reconnects."""
        self.timeout = follow.SILENCE
        return follow.follow(self._reachable, self.url, query or {}, after, on_interruption)

    def backup(self, write: Callable[[bytes], object]) -> s.BackupContents:
        """Pass a backup of the state to `write`, chunk by chunk, and describe its contents."""
        connection = self._reachable()
        try:
            response = self._response(connection, "/v1/backup")
            if response.status >= 400:
                raise self._refusal(response.status, "/v1/backup", response.read())
            contents, remaining = response.getheader(s.BACKUP_HEADER, ""), response.length or 0
            while chunk := _read_chunk(response):
                write(chunk)
                remaining -= len(chunk)
        finally:
            connection.close()
        if remaining:
            raise ControlError(
                f"the response of {self.url} broke off {remaining:,} bytes before the end of the"
                " backup"
            )
        return self._decode(contents, s.BackupContents)

    def call(self, operation: Operation[T], *arguments: Any, **query: Filter) -> T:
        """Carry out an operation. The arguments are those of its path, in order, and its body."""
        path, body = _filled(operation, arguments)
        key = {KEY: str(uuid.uuid4())} if operation.keyed else {}
        return self._call(operation.method, path, operation.returns, body, query, key)

    def pages(self, operation: Operation[list[T]], *arguments: str, **query: Filter) -> Iterator[T]:
        """Yield the items of all pages of a list."""
        path, _ = _filled(operation, arguments)
        target = _target(path, query)
        while target:
            status, headers, content = self._send("GET", target, None, {})
            if status >= 400:
                raise self._refusal(status, path, content)
            yield from self._decode(content, operation.returns)
            link = _NEXT.search(headers.get("Link", ""))
            target = link[1] if link else ""

    def _call(
        self,
        method: str,
        path: str,
        type: type[T],
        body: object,
        query: Mapping[str, Filter],
        headers: Mapping[str, str],
    ) -> T:
        status, _, content = self._send(method, _target(path, query), body, headers)
        if status >= 400:
            raise self._refusal(status, path, content)
        return self._decode(content, type)

    def _decode(self, content: bytes | str, type: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=type)
        except msgspec.MsgspecError as error:
            raise ControlError(
                f"{self.url} is not a forewarn service of this version: {error}"
            ) from error

    def _refusal(self, status: int, path: str, content: bytes) -> ControlError:
        try:
            problem = msgspec.json.decode(content, type=s.Problem)
        except msgspec.MsgspecError:
            if status < 500:  # otherwise a proxy answered in the service's place
                return ControlError(
                    f"{self.url} is not the control API of a service: it answered {status} to"
                    f" {path}"
                )
            return ControlError(f"{self.url}{path} answered {status}")
        return ControlError(problem.detail, problem)

    def _response(
        self,
        connection: http.client.HTTPConnection,
        target: str,
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        """Send a GET request, and return its response before the body has been read."""
        try:
            connection.request("GET", urlsplit(self.url).path + target, headers=headers or {})
            return connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise unreachable(self.url, error) from error

    def _connection(self, patience: float | None) -> http.client.HTTPConnection:
        return self._addresses[0].connection(patience)

    def _reachable(self) -> http.client.HTTPConnection:
        """Return a connection to the first control node that can be reached."""
        for _ in self._addresses[1:] and self._addresses:
            connection = self._connection(CONNECT_FIRST)
            try:
                connection.connect()
                connection.sock.settimeout(self.timeout)
                return connection
            except OSError:
                connection.close()
                self._turn()
        return self._connection(self.timeout)

    def _send(
        self, method: str, target: str, body: object, headers: Mapping[str, str]
    ) -> tuple[int, Message, bytes]:
        """Send a request. If it has a key and its connection breaks, repeat it until the first one
        is no longer under way."""
        if KEY not in headers:
            return self._exchange(method, target, body, headers)
        try:
            return self._exchange(method, target, body, headers)
        except Unreachable as error:
            if isinstance(error.__cause__, TimeoutError):
                raise self._unknown_outcome("did not answer in time", error) from error
            if not isinstance(error.__cause__, _BROKEN):
                raise
        try:
            for _ in range(UNDER_WAY_TRIES):
                response = self._exchange(method, target, body, headers)
                if not _under_way(response):
                    return response
                threading.Event().wait(UNDER_WAY_PAUSE)
        except Unreachable as error:
            raise self._unknown_outcome("broke off before the response", error) from error
        raise self._unknown_outcome("broke off before the response")

    def _unknown_outcome(self, failure: str, error: Unreachable | None = None) -> Unreachable:
        cause = "" if error is None or error.__cause__ is None else f" ({error.__cause__})"
        still = "" if error is not None else ", and the request is still under way"
        return Unreachable(
            f"{self.url} {failure}{cause}{still}; it is unknown whether the request was carried"
            " out, so check before you try again"
        )

    def _exchange(
        self, method: str, target: str, body: object, headers: Mapping[str, str]
    ) -> tuple[int, Message, bytes]:
        """Send a request to one control node after the other, until one answers that decides. Those
        that follow know less, so they answer only what nobody else does: a GET request while none
        decides. Other requests wait for one that does: a take-over takes seconds."""
        repeatable = method == "GET" or KEY in headers
        several = len(self._addresses) > 1
        asked = {**headers, s.LEADER_HEADER: s.LEADER_ONLY} if several else headers
        patience, waits = CONNECT_FIRST if several else self.timeout, 0
        while True:
            refusal: tuple[int, Message, bytes] | None = None
            failure: Unreachable | None = None
            for _ in self._addresses:
                try:
                    response = self._exchange_once(method, target, body, asked, patience)
                except Unreachable as error:
                    if error.sent and not repeatable:
                        raise
                    failure = error
                    self._turn()
                    continue
                if not _is(response, 503, s.NOT_LEADING):
                    return response
                refusal = response
                self._turn(response[1].get(s.LEADER_HEADER, ""))
            if asked is not headers and (refusal is None or method == "GET"):
                asked, patience = headers, self.timeout
                continue
            if refusal is None:
                assert failure is not None
                raise failure
            if not several or waits == LEADER_TRIES:
                return refusal
            if not waits:
                self.on_wait()
            waits += 1
            threading.Event().wait(LEADER_PAUSE)

    def _exchange_once(
        self,
        method: str,
        target: str,
        body: object,
        headers: Mapping[str, str],
        patience: float | None,
    ) -> tuple[int, Message, bytes]:
        """Send a request to the first control node, to which there is a connection within so many
        seconds."""
        parts = urlsplit(self.url)
        connected = False
        all_headers: dict[str, Any] = {"Content-Type": "application/json", **GZIP, **headers}
        try:
            connection = self._connection(patience)
            try:
                data = None if body is None else msgspec.json.encode(body)
                connection.connect()
                connection.sock.settimeout(self.timeout)
                connected = True
                connection.request(method, parts.path + target, data, all_headers)
                response = connection.getresponse()
                self.clock_header = _clock_header(response)
                return response.status, response.headers, _body(response).read()
            finally:
                connection.close()
        except (OSError, EOFError, http.client.HTTPException, ValueError) as error:
            failure = unreachable(self.url, error)
            failure.sent = connected
            raise failure from error


def _clock_header(response: http.client.HTTPResponse) -> s.ClockHeader | None:
    try:
        return msgspec.json.decode(response.getheader(s.CLOCK_HEADER, ""), type=s.ClockHeader)
    except msgspec.MsgspecError:
        return None


def _read_chunk(response: http.client.HTTPResponse) -> bytes:
    """Return the next bytes; none if the response has ended or broke off."""
    try:
        return response.read(READ_AT_ONCE)
    except (OSError, http.client.HTTPException):
        return b""


def _body(response: http.client.HTTPResponse) -> BufferedIOBase:
    """Return the body of a response, decompressed as it is read."""
    if response.getheader("Content-Encoding") == "gzip":
        return gzip.GzipFile(fileobj=response)
    return response


def _lines(response: BufferedIOBase) -> Iterator[bytes]:
    """Yield the lines of a response. Unlike its own iterator, raise if the response broke off."""
    rest = b""
    while chunk := response.read(READ_AT_ONCE):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)


def _under_way(response: tuple[int, Message, bytes]) -> bool:
    """Whether the first request, whose connection broke, is still being carried out."""
    return _is(response, 409, s.UNDER_WAY)


def _is(response: tuple[int, Message, bytes], status: int, problem: str) -> bool:
    """Whether a response is this problem."""
    if response[0] != status:
        return False
    try:
        return msgspec.json.decode(response[2], type=s.Problem).type.endswith(problem)
    except msgspec.MsgspecError:
        return False


def _filled(operation: Operation[Any], arguments: Sequence[Any]) -> tuple[str, Any]:
    """Return the path of an operation with its parameters, and the body."""
    values = iter(arguments)
    path = _PARAMETER.sub(lambda _: quote(next(values), safe=""), operation.path)
    return path, next(values, None)


def _target(path: str, query: Mapping[str, Filter]) -> str:
    """Return the path with the parameters that are not None."""
    parameters = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in query.items()
        if value is not None
    }
    return f"{path}?{urlencode(parameters)}" if parameters else path
