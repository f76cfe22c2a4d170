"""The control API from the other side, for commands and tests: blocking, standard library only."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from forewarn.control import rollout_schema as r
from forewarn.control import schema as s
from forewarn.control.fleet_schema import FleetDifference, FleetProgress
from forewarn.control.history_schema import HistoryPage, HistoryRecord

TIMEOUT = 60.0  # seconds; winding a clock forward may take a while
READ_AT_ONCE = 64 * 1024  # bytes of an export

T = TypeVar("T")


class ControlError(Exception):
    """The service refused, or is not there; the message is one clear line."""


class Unreachable(ControlError):
    """The service is not there, or not now."""


class ControlClient:
    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.timeout = TIMEOUT

    def status(self) -> s.Status:
        return self._call("GET", "/v1/status", s.Status)

    def machines(self, group: str | None = None, label: str | None = None) -> list[s.Machine]:
        query = {"group": group, "label": label}
        return self._call("GET", "/v1/machines", list[s.Machine], query=query)

    def machine(self, name: str) -> s.Machine:
        return self._call("GET", f"/v1/machines/{_segment(name)}", s.Machine)

    def maintain(self, verb: str, name: str) -> s.Outcome:
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
        query = {"group": group, "past": str(past).lower(), "limit": str(limit)}
        return self._call("GET", "/v1/events", list[s.Event], query=query)

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

    def apply(self, text: bytes, *, plan: bool = False, force: bool = False) -> FleetDifference:
        query: dict[str, str | None] = {"plan": str(plan).lower(), "force": str(force).lower()}
        return self._call("PUT", "/v1/fleet", FleetDifference, body=msgspec.Raw(text), query=query)

    def fleet_progress(self) -> FleetProgress:
        return self._call("GET", "/v1/fleet/progress", FleetProgress)

    def clock(self) -> s.Clock:
        return self._call("GET", "/v1/clock", s.Clock)

    def advance(self, request: s.AdvanceRequest) -> s.Clock:
        return self._call("POST", "/v1/clock/advance", s.Clock, body=request)

    def history(self, asked: Mapping[str, str | None]) -> HistoryPage:
        return self._call("GET", "/v1/history", HistoryPage, query=dict(asked))

    def last_of_history(self, asked: Mapping[str, str | None], limit: int) -> list[HistoryRecord]:
        """The last so many that match, the newest last."""
        found: list[HistoryRecord] = []
        before: str | None = None
        while len(found) < limit:
            size = str(min(limit - len(found), 1_000))
            page = self.history({**asked, "limit": size, "before": before})
            found += page.records
            if not page.next:
                break
            before = page.next
        return found[::-1]

    def history_after(
        self, asked: Mapping[str, str | None], seq: int, limit: int | None
    ) -> Iterator[HistoryRecord]:
        """All that match and have a higher number, in the order in which they were written."""
        left = limit
        after = str(seq)
        while after and left != 0:
            size = str(min(left or 1_000, 1_000))
            page = self.history({**asked, "limit": size, "after_seq": after})
            yield from page.records
            after = page.next
            left = None if left is None else left - len(page.records)

    def history_lines(self, asked: Mapping[str, str | None]) -> Iterator[bytes]:
        """All that matches, the oldest first, as JSON lines, without holding them in memory."""
        said = {key: value for key, value in asked.items() if value is not None}
        connection = self._connection()
        try:
            target = f"/v1/history/export?{urlencode(said)}"
            connection.request("GET", urlsplit(self.url).path + target)
            response = connection.getresponse()
            if response.status >= 400:
                raise self._refusal(response.status, "/v1/history/export", response.read())
            yield from _lines(response)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ControlError(f"{self.url} broke off: {error}") from error
        finally:
            connection.close()

    def _call(
        self,
        method: str,
        path: str,
        type: type[T],
        *,
        body: object = None,
        query: dict[str, str | None] | None = None,
    ) -> T:
        said = {key: value for key, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(said)}" if said else path
        status, answer = self._exchange(method, target, body)
        if status >= 400:
            raise self._refusal(status, path, answer)
        try:
            return msgspec.json.decode(answer, type=type)
        except msgspec.MsgspecError as error:
            raise ControlError(f"{self.url} is not a forewarn of this version: {error}") from error

    def _refusal(self, status: int, path: str, answer: bytes) -> ControlError:
        try:
            return ControlError(msgspec.json.decode(answer, type=s.Problem).detail)
        except msgspec.MsgspecError:
            return ControlError(f"{self.url}{path} answered {status}")

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(
            parts.hostname or "", parts.port or 80, timeout=self.timeout
        )

    def _exchange(self, method: str, target: str, body: object) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        headers: dict[str, Any] = {"Content-Type": "application/json"}
        try:
            connection = self._connection()
            try:
                data = None if body is None else msgspec.json.encode(body)
                connection.request(method, parts.path + target, data, headers)
                response = connection.getresponse()
                return response.status, response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(f"no service answers at {self.url}: {error}") from error


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Not the response's own lines: those end quietly where the service broke off."""
    rest = b""
    while block := response.read(READ_AT_ONCE):
        *lines, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in lines)


def _segment(text: str) -> str:
    return quote(text, safe="")
