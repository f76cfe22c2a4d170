"""A blocking client of the control API, for commands and tests; standard library only."""

from __future__ import annotations

import http.client
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from email.message import Message
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from forewarn.control.client import follow
from forewarn.control.client.connection import ControlError as ControlError
from forewarn.control.client.connection import ServiceAddress
from forewarn.control.client.connection import Unreachable as Unreachable
from forewarn.control.schema import core as s
from forewarn.control.schema import faults as f
from forewarn.control.schema import rollouts as r
from forewarn.control.schema import tokens as t
from forewarn.control.schema.feed import ChangesPage, FeedCommit, HistoryPage, HistoryRecord
from forewarn.control.schema.fleet import FleetDifference, FleetProgress
from forewarn.verdict.verdict import Verdict

TIMEOUT = 60.0  # seconds; advancing a clock may take a while
UNDER_WAY_TRIES = 30  # repetitions of a request whose connection broke and that is under way
UNDER_WAY_PAUSE = 1.0  # seconds in between
READ_AT_ONCE = 64 * 1024  # bytes of an export

T = TypeVar("T")

KEY = "Idempotency-Key"
_BROKEN = (ConnectionResetError, BrokenPipeError, http.client.HTTPException)
_NEXT = re.compile(r'<([^>]*)>; rel="next"')


class ControlClient:
    def __init__(self, where: str | ServiceAddress) -> None:
        self._address = ServiceAddress(where) if isinstance(where, str) else where
        self.url = self._address.url.rstrip("/")
        self.timeout = TIMEOUT

    def status(self) -> s.Status:
        return self._call("GET", "/v1/status", s.Status)

    def machines(self, group: str | None = None, label: str | None = None) -> list[s.Machine]:
        query = {"group": group, "label": label}
        return self._call("GET", "/v1/machines", list[s.Machine], query=query)

    def machine(self, name: str) -> s.Machine:
        return self._call("GET", f"/v1/machines/{_segment(name)}", s.Machine)

    def maintain(self, verb: str, name: str) -> s.Outcome:
        """Restart or redeploy a machine as its user."""
        return self._call("POST", f"/v1/machines/{_segment(name)}/{verb}", s.Outcome)

    def restore(self, name: str) -> s.Restored:
        return self._call("POST", f"/v1/machines/{_segment(name)}/restore", s.Restored)

    def groups(self, label: str | None = None) -> list[s.Group]:
        return self._call("GET", "/v1/groups", list[s.Group], query={"label": label})

    def group(self, name: str) -> s.Group:
        return self._call("GET", f"/v1/groups/{_segment(name)}", s.Group)

    def disable(self, name: str) -> s.Group:
        return self._call("POST", f"/v1/groups/{_segment(name)}/disable", s.Group)

    def events(
        self, *, group: str | None = None, past: bool = False, limit: int = 100
    ) -> list[s.Event]:
        """Return all active events, and at most `limit` that are over."""
        query = {"group": group, "past": str(past).lower()}
        events: list[s.Event] = []
        for event in self._pages("/v1/events", s.Event, query):
            limit -= event.ended_at is not None
            if limit < 0:
                break
            events.append(event)
        return events

    def event(self, id: str) -> s.Event:
        return self._call("GET", f"/v1/events/{_segment(id)}", s.Event)

    def schedule(self, request: s.ScheduleRequest) -> s.Outcome:
        return self._call("POST", "/v1/events", s.Outcome, body=request)

    def on_event(self, verb: str, id: str, body: object = None) -> s.Outcome:
        return self._call("POST", f"/v1/events/{_segment(id)}/{verb}", s.Outcome, body=body)

    def explain(self, id: str) -> s.Explanation:
        return self._call("GET", f"/v1/events/{_segment(id)}/explain", s.Explanation)

    def evict(self, name: str) -> s.Outcome:
        return self._call("POST", f"/v1/machines/{_segment(name)}/evict", s.Outcome)

    def delete(self, name: str) -> s.Outcome:
        return self._call("POST", f"/v1/machines/{_segment(name)}/delete", s.Outcome)

    def fail_machine(self, name: str, request: s.FailMachineRequest) -> s.Outcome:
        return self._call("POST", f"/v1/machines/{_segment(name)}/fail", s.Outcome, body=request)

    def evict_group(self, name: str) -> s.Outcomes:
        return self._call("POST", f"/v1/groups/{_segment(name)}/evict", s.Outcomes)

    def scale_in(self, name: str, request: s.ScaleInRequest) -> s.Outcomes:
        path = f"/v1/groups/{_segment(name)}/scale-in"
        return self._call("POST", path, s.Outcomes, body=request)

    def set_policy(self, name: str, request: s.PolicyRequest) -> s.Group:
        return self._call("PATCH", f"/v1/groups/{_segment(name)}/policy", s.Group, body=request)

    def hosts(self, label: str | None = None) -> list[s.Host]:
        return self._call("GET", "/v1/hosts", list[s.Host], query={"label": label})

    def host(self, name: str) -> s.Host:
        return self._call("GET", f"/v1/hosts/{_segment(name)}", s.Host)

    def explain_host(self, name: str) -> s.HostExplanation:
        return self._call("GET", f"/v1/hosts/{_segment(name)}/explain", s.HostExplanation)

    def on_host(self, verb: str, name: str, body: object = None) -> s.Outcomes:
        """maintain, degrade, fail or repair."""
        return self._call("POST", f"/v1/hosts/{_segment(name)}/{verb}", s.Outcomes, body=body)

    def rollouts(self) -> list[r.Rollout]:
        return self._call("GET", "/v1/rollouts", list[r.Rollout])

    def rollout(self, id: str) -> r.RolloutReport:
        return self._call("GET", f"/v1/rollouts/{_segment(id)}", r.RolloutReport)

    def start_rollout(self, request: r.RolloutRequest) -> r.RolloutReport:
        return self._call("POST", "/v1/rollouts", r.RolloutReport, body=request)

    def plan_rollout(self, request: r.RolloutRequest) -> r.RolloutPlan:
        return self._call("POST", "/v1/rollouts/plan", r.RolloutPlan, body=request)

    def on_rollout(self, verb: str, id: str, body: object = None) -> r.RolloutReport:
        return self._call("POST", f"/v1/rollouts/{_segment(id)}/{verb}", r.RolloutReport, body=body)

    def explain_rollout(self, id: str) -> r.RolloutExplanation:
        return self._call("GET", f"/v1/rollouts/{_segment(id)}/explain", r.RolloutExplanation)

    def apply(
        self,
        text: bytes,
        *,
        plan: bool = False,
        force: bool = False,
        if_match: str | None = None,
    ) -> FleetDifference:
        query: dict[str, str | None] = {"plan": str(plan).lower(), "force": str(force).lower()}
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
        return self._call("GET", "/v1/tokens", list[t.Token])

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
        query = {"machine": machine, "event": event}
        return self._call("GET", "/v1/verdict", Verdict, query=query)

    def forget_verdict(self) -> Verdict:
        return self._call("POST", "/v1/verdict/forget", Verdict)

    def clock(self) -> s.Clock:
        return self._call("GET", "/v1/clock", s.Clock)

    def advance(self, request: s.AdvanceRequest) -> s.Clock:
        return self._call("POST", "/v1/clock/advance", s.Clock, body=request)

    def play(self, by: float) -> s.Clock:
        """Play the clock forward by so many seconds, in as many requests as that takes."""
        started, request = self.clock().now, s.AdvanceRequest(by=by)
        while True:
            clock = self._call("POST", "/v1/clock/play", s.Clock, body=request)
            to = started + timedelta(seconds=by)
            if clock.now >= to:
                return clock
            request = s.AdvanceRequest(to=to)

    def resume_clock(self, speed: float = 1.0) -> s.Clock:
        request = s.ResumeClockRequest(speed=speed)
        return self._call("POST", "/v1/clock/resume", s.Clock, body=request)

    def accept_clock(self) -> s.AcceptedClock:
        return self._call("POST", "/v1/clock/accept", s.AcceptedClock)

    def pause_clock(self) -> s.Clock:
        return self._call("POST", "/v1/clock/pause", s.Clock)

    def history(self, query: Mapping[str, str | None]) -> HistoryPage:
        return self._call("GET", "/v1/history", HistoryPage, query=query)

    def last_of_history(self, query: Mapping[str, str | None], limit: int) -> list[HistoryRecord]:
        """Return the last `limit` records that match, the newest last."""
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
        """Yield the records that match and have a higher number, in the order they were written."""
        left = limit
        after = str(seq)
        while after and left != 0:
            size = str(min(left or 1_000, 1_000))
            page = self.history({**query, "limit": size, "after_seq": after})
            yield from page.records
            after = page.next
            left = None if left is None else left - len(page.records)

    def history_lines(self, query: Mapping[str, str | None]) -> Iterator[bytes]:
        """Yield all records that match as JSON lines, the oldest first."""
        given = {key: value for key, value in query.items() if value is not None}
        connection = self._connection()
        try:
            target = f"/v1/history/export?{urlencode(given)}"
            connection.request("GET", urlsplit(self.url).path + target)
            response = connection.getresponse()
            if response.status >= 400:
                raise self._refusal(response.status, "/v1/history/export", response.read())
            yield from _lines(response)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ControlError(f"{self.url} broke off: {error}") from error
        finally:
            connection.close()

    def changes(self, query: Mapping[str, str | None]) -> ChangesPage:
        """Return what came after a commit (`after`), waiting for it (`wait`, seconds)."""
        return self._call("GET", "/v1/changes", ChangesPage, query=query)

    def follow(
        self,
        after: int | None = None,
        query: Mapping[str, str | None] | None = None,
        away: Callable[[str], None] = lambda _: None,
    ) -> Iterator[FeedCommit]:
        """Yield every commit from now on, or after a commit, once and in order, across restarts of
        the service. `away` is called with the reason when the service has to be waited for."""
        self.timeout = follow.SILENCE
        return follow.follow(self._connection, self.url, query or {}, after, away)

    def backup(self, write: Callable[[bytes], object]) -> s.BackupContents:
        """Pass a backup of the state to `write`, block by block, and return what it contains."""
        connection = self._connection()
        try:
            try:
                connection.request("GET", urlsplit(self.url).path + "/v1/backup")
                response = connection.getresponse()
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise Unreachable(f"no service answers at {self.url}: {error}") from error
            if response.status >= 400:
                raise self._refusal(response.status, "/v1/backup", response.read())
            contents, left = response.getheader(s.BACKUP_HEADER, ""), response.length or 0
            while block := _block(response):
                write(block)
                left -= len(block)
        finally:
            connection.close()
        if left:
            raise ControlError(f"{self.url} broke off, {left:,} bytes before the end of the copy")
        try:
            return msgspec.json.decode(contents, type=s.BackupContents)
        except msgspec.MsgspecError as error:
            raise ControlError(f"{self.url} is not a forewarn of this version: {error}") from error

    def _call(
        self,
        method: str,
        path: str,
        type: type[T],
        *,
        body: object = None,
        query: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        given = {key: value for key, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        key = {KEY: str(uuid.uuid4())} if method == "POST" and _once_only(path) else {}
        status, _, answer = self._send(method, target, body, {**key, **(headers or {})})
        if status >= 400:
            raise self._refusal(status, path, answer)
        return self._decoded(answer, type)

    def _pages(self, path: str, type: type[T], query: Mapping[str, str | None]) -> Iterator[T]:
        """Yield the items of a list, from as many pages as there are."""
        given = {key: value for key, value in query.items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        while target:
            status, headers, answer = self._send("GET", target, None, {})
            if status >= 400:
                raise self._refusal(status, path, answer)
            yield from self._decoded(answer, list[type])  # type: ignore[valid-type]
            link = _NEXT.search(headers.get("Link", ""))
            target = link[1] if link else ""

    def _decoded(self, answer: bytes, type: type[T]) -> T:
        try:
            return msgspec.json.decode(answer, type=type)
        except msgspec.MsgspecError as error:
            raise ControlError(f"{self.url} is not a forewarn of this version: {error}") from error

    def _refusal(self, status: int, path: str, answer: bytes) -> ControlError:
        try:
            problem = msgspec.json.decode(answer, type=s.Problem)
        except msgspec.MsgspecError:
            return ControlError(f"{self.url}{path} answered {status}")
        return ControlError(problem.detail, problem)

    def _connection(self) -> http.client.HTTPConnection:
        return self._address.connection(self.timeout)

    def _send(
        self, method: str, target: str, body: object, more: Mapping[str, str]
    ) -> tuple[int, Message, bytes]:
        """Send a request. One that has a key is repeated if its connection broke; if it is still
        under way then, it is waited for."""
        if KEY not in more:
            return self._exchange(method, target, body, more)
        try:
            return self._exchange(method, target, body, more)
        except Unreachable as lost:
            if isinstance(lost.__cause__, TimeoutError):
                raise self._unknown("has not answered in time", lost) from lost
            if not isinstance(lost.__cause__, _BROKEN):
                raise
        try:
            for _ in range(UNDER_WAY_TRIES):
                response = self._exchange(method, target, body, more)
                if not _under_way(response):
                    return response
                threading.Event().wait(UNDER_WAY_PAUSE)
        except Unreachable as error:
            raise self._unknown("broke off before the answer", error) from error
        raise self._unknown("broke off before the answer")

    def _unknown(self, says: str, error: Unreachable | None = None) -> Unreachable:
        now = "" if error is None or error.__cause__ is None else f" ({error.__cause__})"
        still = "" if error is not None else ", and it is still under way"
        return Unreachable(
            f"{self.url} {says}{now}{still}; whether it has been done is not known, so look before"
            " you try again"
        )

    def _exchange(
        self, method: str, target: str, body: object, more: Mapping[str, str]
    ) -> tuple[int, Message, bytes]:
        parts = urlsplit(self.url)
        headers: dict[str, Any] = {"Content-Type": "application/json", **more}
        try:
            connection = self._connection()
            try:
                data = None if body is None else msgspec.json.encode(body)
                connection.request(method, parts.path + target, data, headers)
                response = connection.getresponse()
                return response.status, response.headers, response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(f"no service answers at {self.url}: {error}") from error


def _block(response: http.client.HTTPResponse) -> bytes:
    """Return the next bytes; none where the response ends or breaks off."""
    try:
        return response.read(READ_AT_ONCE)
    except (OSError, http.client.HTTPException):
        return b""


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the lines of a response. Its own iterator ends silently where the service broke off."""
    rest = b""
    while block := response.read(READ_AT_ONCE):
        *lines, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in lines)


def _under_way(response: tuple[int, Message, bytes]) -> bool:
    """Whether the same request, from before the connection broke, has not been answered yet."""
    status, _, answer = response
    if status != 409:
        return False
    try:
        return msgspec.json.decode(answer, type=s.Problem).type.endswith(s.UNDER_WAY)
    except msgspec.MsgspecError:
        return False


def _once_only(path: str) -> bool:
    """Whether a POST to this path must not be carried out twice. The rest can be repeated."""
    repeatable = ("/v1/tokens", "/v1/clock", "/v1/faults", "/v1/verdict", "/v1/rollouts/plan")
    return not path.startswith(repeatable)


def _segment(text: str) -> str:
    return quote(text, safe="")
