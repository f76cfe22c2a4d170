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
from io import BufferedIOBase
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from forewarn.control.client import follow
from forewarn.control.client.connection import ControlError as ControlError
from forewarn.control.client.connection import ServiceAddress, error_text, unreachable
from forewarn.control.client.connection import Unreachable as Unreachable
from forewarn.control.schema import core as s
from forewarn.control.schema import faults as f
from forewarn.control.schema import halts as h
from forewarn.control.schema import maintenance as m
from forewarn.control.schema import rollouts as r
from forewarn.control.schema import tokens as t
from forewarn.control.schema.feed import ChangesPage, FeedCommit, HistoryPage, HistoryRecord
from forewarn.control.schema.fleet import FleetDifference, FleetProgress
from forewarn.control.schema.notify import NotifyState, NotifyTest

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
_NEXT = re.compile(r'<([^>]*)>; rel="next"')


class ControlClient:
    """The operations of the control API, as methods. Raises ControlError."""

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

    def status(self) -> s.Status:
        return self._call("GET", "/v1/status", s.Status)

    def control_nodes(self) -> list[s.ControlNode]:
        return self._call("GET", "/v1/control-nodes", list[s.ControlNode])

    def forget_control_node(self, name: str) -> s.ControlNode:
        return self._call("DELETE", f"/v1/control-nodes/{_segment(name)}", s.ControlNode)

    def readiness(self) -> s.HealthReport:
        """Return whether each part of the service is ready. Not being ready is not an error."""
        _, _, content = self._send("GET", "/readyz", None, {})
        return self._decode(content, s.HealthReport)

    def machines(self, **filters: Filter) -> list[s.Machine]:
        """Return the machines that match the parameters of `GET /v1/machines`."""
        return self._call("GET", "/v1/machines", list[s.Machine], query=filters)

    def unknown_callers(self) -> list[s.UnknownCaller]:
        return self._call("GET", "/v1/callers", list[s.UnknownCaller])

    def notifications(self) -> list[NotifyState]:
        return self._call("GET", "/v1/notify", list[NotifyState])

    def test_notification(self, name: str) -> NotifyTest:
        return self._call("POST", f"/v1/notify/{_segment(name)}/test", NotifyTest)

    def machine(self, name: str) -> s.Machine:
        return self._call("GET", f"/v1/machines/{_segment(name)}", s.Machine)

    def on_machine(self, verb: str, name: str) -> s.Outcome:
        """Restart, redeploy, evict or delete a machine."""
        return self._call("POST", f"/v1/machines/{_segment(name)}/{verb}", s.Outcome)

    def restore(self, name: str) -> s.MachineOutcome:
        return self._call("POST", f"/v1/machines/{_segment(name)}/restore", s.MachineOutcome)

    def record_move(self, name: str, request: s.MovedRequest) -> s.MachineOutcome:
        path = f"/v1/machines/{_segment(name)}/moved"
        return self._call("POST", path, s.MachineOutcome, body=request)

    def groups(self, **filters: Filter) -> list[s.Group]:
        return self._call("GET", "/v1/groups", list[s.Group], query=filters)

    def group(self, name: str) -> s.Group:
        return self._call("GET", f"/v1/groups/{_segment(name)}", s.Group)

    def disable(self, name: str) -> s.Group:
        return self._call("POST", f"/v1/groups/{_segment(name)}/disable", s.Group)

    def events(self, *, limit: int = 100, **filters: Filter) -> list[s.Event]:
        """Return the active events that match the parameters of `GET /v1/events`, and at most
        `limit` that are over."""
        events: list[s.Event] = []
        for event in self._pages("/v1/events", s.Event, filters):
            limit -= event.ended_at is not None
            if limit < 0:
                break
            events.append(event)
        return events

    def event(self, id: str) -> s.EventDetails:
        return self._call("GET", f"/v1/events/{_segment(id)}", s.EventDetails)

    def cancel_events(self, request: s.CancelEventsRequest) -> s.CancelledEvents:
        return self._call("POST", "/v1/events/cancel", s.CancelledEvents, body=request)

    def schedule(self, request: s.ScheduleRequest) -> s.Outcome:
        return self._call("POST", "/v1/events", s.Outcome, body=request)

    def approve(self, id: str, *, ignore_windows: bool = False) -> s.Outcome:
        query = {"ignore_windows": "true" if ignore_windows else None}
        return self._call("POST", f"/v1/events/{_segment(id)}/approve", s.Outcome, query=query)

    def on_event(self, verb: str, id: str, body: object = None) -> s.Outcome:
        """Postpone, cancel, retry, finish or abandon an event, or report a machine ready for it."""
        return self._call("POST", f"/v1/events/{_segment(id)}/{verb}", s.Outcome, body=body)

    def group_windows(self, name: str) -> s.GroupWindows:
        return self._call("GET", f"/v1/groups/{_segment(name)}/windows", s.GroupWindows)

    def maintenance(self) -> list[m.Maintenance]:
        return list(self._pages("/v1/maintenance", m.Maintenance, {}))

    def set_maintenance(self, name: str, request: m.MaintenanceRequest) -> m.MaintenanceOutcome:
        path = f"/v1/maintenance/{_segment(name)}"
        return self._call("PUT", path, m.MaintenanceOutcome, body=request)

    def remove_maintenance(self, name: str) -> m.Maintenance:
        return self._call("DELETE", f"/v1/maintenance/{_segment(name)}", m.Maintenance)

    def explain(self, id: str) -> s.Explanation:
        return self._call("GET", f"/v1/events/{_segment(id)}/explain", s.Explanation)

    def fail_machine(self, name: str, request: s.FailMachineRequest) -> s.Outcome:
        return self._call("POST", f"/v1/machines/{_segment(name)}/fail", s.Outcome, body=request)

    def on_machines(self, verb: str, machines: Sequence[str]) -> s.Outcomes:
        """Restart, redeploy, evict or delete several machines, all of them or none."""
        request = s.MachinesRequest(machines=list(machines))
        return self._call("POST", f"/v1/batch/{verb}", s.Outcomes, body=request)

    def evict_group(self, name: str) -> s.Outcomes:
        return self._call("POST", f"/v1/groups/{_segment(name)}/evict", s.Outcomes)

    def scale_in(self, name: str, request: s.ScaleInRequest) -> s.Outcomes:
        path = f"/v1/groups/{_segment(name)}/scale-in"
        return self._call("POST", path, s.Outcomes, body=request)

    def set_policy(self, name: str, request: s.PolicyRequest) -> s.GroupOutcome:
        path = f"/v1/groups/{_segment(name)}/policy"
        return self._call("PATCH", path, s.GroupOutcome, body=request)

    def hosts(self, **filters: Filter) -> list[s.Host]:
        return self._call("GET", "/v1/hosts", list[s.Host], query=filters)

    def host(self, name: str) -> s.Host:
        return self._call("GET", f"/v1/hosts/{_segment(name)}", s.Host)

    def explain_host(self, name: str) -> s.HostExplanation:
        return self._call("GET", f"/v1/hosts/{_segment(name)}/explain", s.HostExplanation)

    def on_host(self, verb: str, name: str, body: object = None) -> s.Outcomes:
        """Maintain, degrade, fail, repair, cordon, uncordon, drain or return a host, revoke its
        certificates, or declare that it is without a node."""
        return self._call("POST", f"/v1/hosts/{_segment(name)}/{verb}", s.Outcomes, body=body)

    def enroll(self, request: s.EnrollmentRequest) -> s.Enrollment:
        return self._call("POST", "/v1/enrollments", s.Enrollment, body=request)

    def rollouts(self, **filters: Filter) -> list[r.Rollout]:
        return self._call("GET", "/v1/rollouts", list[r.Rollout], query=filters)

    def rollout(self, id: str, *, expected_end: bool = False) -> r.RolloutReport:
        query = {"expected_end": "true"} if expected_end else {}
        return self._call("GET", f"/v1/rollouts/{_segment(id)}", r.RolloutReport, query=query)

    def start_rollout(self, request: r.RolloutRequest) -> r.RolloutReport:
        return self._call("POST", "/v1/rollouts", r.RolloutReport, body=request)

    def plan_rollout(
        self, request: r.RolloutRequest, *, lane: str | None = None, steps: int | None = None
    ) -> r.RolloutPlan:
        """Plan a rollout; of its steps, return those of a lane, at most so many."""
        query = {"lane": lane, "steps": None if steps is None else str(steps)}
        return self._call("POST", "/v1/rollouts/plan", r.RolloutPlan, body=request, query=query)

    def rollout_steps(
        self,
        id: str,
        *,
        group: str | None = None,
        host: str | None = None,
        state: str | None = None,
    ) -> Iterator[r.Step]:
        query = {"group": group, "host": host, "state": state, "limit": "1000"}
        return self._pages(f"/v1/rollouts/{_segment(id)}/steps", r.Step, query)

    def on_rollout(self, verb: str, id: str, body: object = None) -> r.RolloutReport:
        """Pause, resume or abort a rollout, or skip steps of it."""
        return self._call("POST", f"/v1/rollouts/{_segment(id)}/{verb}", r.RolloutReport, body=body)

    def explain_rollout(
        self, id: str, *, group: str | None = None, host: str | None = None
    ) -> r.RolloutExplanation:
        path = f"/v1/rollouts/{_segment(id)}/explain"
        return self._call("GET", path, r.RolloutExplanation, query={"group": group, "host": host})

    def halts(self) -> list[h.Halt]:
        return list(self._pages("/v1/halts", h.Halt, {}))

    def place_halt(self, request: h.HaltRequest) -> h.Halt:
        return self._call("POST", "/v1/halts", h.Halt, body=request)

    def release_halt(self, id: str, request: h.ReleaseRequest) -> h.Halt:
        return self._call("POST", f"/v1/halts/{_segment(id)}/release", h.Halt, body=request)

    def apply(
        self,
        text: bytes,
        *,
        plan: bool = False,
        force: bool = False,
        placement: str | None = None,
        remove: int | None = None,
        if_match: str | None = None,
    ) -> FleetDifference:
        query = {"plan": plan, "force": force, "placement": placement, "remove": remove}
        headers = {"If-Match": f'"{if_match}"'} if if_match else {}
        return self._call(
            *("PUT", "/v1/fleet", FleetDifference),
            body=msgspec.Raw(text),
            query=query,
            headers=headers,
        )

    def fleet_progress(self) -> FleetProgress:
        return self._call("GET", "/v1/fleet/progress", FleetProgress)

    def tokens(self) -> list[t.Token]:
        return list(self._pages("/v1/tokens", t.Token, {"limit": TOKENS_PAGE}))

    def create_token(self, request: t.TokenRequest) -> t.CreatedToken:
        return self._call("POST", "/v1/tokens", t.CreatedToken, body=request)

    def revoke_token(self, id_or_name: str, request: t.RevokeRequest) -> t.Token:
        path = f"/v1/tokens/{_segment(id_or_name)}/revoke"
        return self._call("POST", path, t.Token, body=request)

    def faults(self) -> list[f.Fault]:
        return self._call("GET", "/v1/faults", list[f.Fault])

    def add_fault(self, request: f.FaultRequest) -> f.Fault:
        return self._call("POST", "/v1/faults", f.Fault, body=request)

    def clear_fault(self, id: str) -> f.Fault:
        return self._call("DELETE", f"/v1/faults/{_segment(id)}", f.Fault)

    def clear_faults(self) -> list[f.Fault]:
        return self._call("DELETE", "/v1/faults", list[f.Fault])

    def verdict(self, machine: str | None = None, event: str | None = None) -> Verdict:
        from forewarn.verdict.verdict import Verdict

        query = {"machine": machine, "event": event}
        return self._call("GET", "/v1/verdict", Verdict, query=query)

    def forget_verdict(self) -> Verdict:
        from forewarn.verdict.verdict import Verdict

        return self._call("POST", "/v1/verdict/forget", Verdict)

    def clock(self) -> s.Clock:
        return self._call("GET", "/v1/clock", s.Clock)

    def advance(self, request: s.AdvanceRequest) -> s.Clock:
        """Advance a virtual clock, and wait for everything that becomes due, however long it
        takes."""
        timeout, self.timeout = self.timeout, None
        try:
            return self._call("POST", "/v1/clock/advance", s.Clock, body=request)
        finally:
            self.timeout = timeout

    def play(self, request: s.PlayRequest) -> s.Clock:
        """Play the clock forward, with as many requests as that takes."""
        to = request.to or self.clock().now + timedelta(seconds=request.by or 0.0)
        while True:
            clock = self._call("POST", "/v1/clock/play", s.Clock, body=request)
            if clock.now >= to:
                return clock
            request = msgspec.structs.replace(request, by=None, to=to)

    def resume_clock(self, speed: float = 1.0) -> s.Clock:
        request = s.ResumeClockRequest(speed=speed)
        return self._call("POST", "/v1/clock/resume", s.Clock, body=request)

    def accept_clock(self) -> s.AcceptedClock:
        return self._call("POST", "/v1/clock/accept", s.AcceptedClock)

    def pause_clock(self) -> s.Clock:
        return self._call("POST", "/v1/clock/pause", s.Clock)

    def history(self, query: Mapping[str, str | None]) -> HistoryPage:
        return self._call("GET", "/v1/history", HistoryPage, query=query)

    def last_records(self, query: Mapping[str, str | None], limit: int) -> list[HistoryRecord]:
        """Return the last `limit` matching records, the newest last."""
        records: list[HistoryRecord] = []
        before: str | None = None
        while len(records) < limit:
            size = str(min(limit - len(records), 1_000))
            page = self.history({**query, "limit": size, "before": before})
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
            page = self.history({**query, "limit": size, "after_seq": after})
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

    def changes(self, query: Mapping[str, str | None]) -> ChangesPage:
        """Return the changes after a commit (`after`), waiting up to `wait` seconds for them."""
        return self._call("GET", "/v1/changes", ChangesPage, query=query)

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

    def _call(
        self,
        method: str,
        path: str,
        type: type[T],
        *,
        body: object = None,
        query: Mapping[str, Filter] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        target = _target(path, query or {})
        key = {KEY: str(uuid.uuid4())} if method == "POST" and _once_only(path) else {}
        status, _, content = self._send(method, target, body, {**key, **(headers or {})})
        if status >= 400:
            raise self._refusal(status, path, content)
        return self._decode(content, type)

    def _pages(self, path: str, type: type[T], query: Mapping[str, Filter]) -> Iterator[T]:
        """Yield the items of all pages of a list."""
        target = _target(path, query)
        while target:
            status, headers, content = self._send("GET", target, None, {})
            if status >= 400:
                raise self._refusal(status, path, content)
            yield from self._decode(content, list[type])  # type: ignore[valid-type]
            link = _NEXT.search(headers.get("Link", ""))
            target = link[1] if link else ""

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


def _once_only(path: str) -> bool:
    """Whether a POST to this path must not be carried out twice, and so needs a key."""
    parts = (
        "tokens",
        "enrollments",
        "clock",
        "faults",
        "halts",
        "verdict",
        "rollouts/plan",
        "events/cancel",
    )
    repeatable = tuple(f"/v1/{part}" for part in parts)
    return not path.startswith(repeatable)


def _target(path: str, query: Mapping[str, Filter]) -> str:
    """Return the path with the parameters that are not None."""
    parameters = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in query.items()
        if value is not None
    }
    return f"{path}?{urlencode(parameters)}" if parameters else path


def _segment(text: str) -> str:
    return quote(text, safe="")
