"""The control API from the other side, for commands and tests: blocking, standard library only."""

from __future__ import annotations

import http.client
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from forewarn.control import schema as s

TIMEOUT = 60.0  # seconds; winding a clock forward may take a while

T = TypeVar("T")


class ControlError(Exception):
    """The service refused, or is not there; the message is one clear line."""


class ControlClient:
    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def status(self) -> s.Status:
        return self._call("GET", "/v1/status", s.Status)

    def machines(self, group: str | None = None) -> list[s.Machine]:
        return self._call("GET", "/v1/machines", list[s.Machine], query={"group": group})

    def machine(self, name: str) -> s.Machine:
        return self._call("GET", f"/v1/machines/{_segment(name)}", s.Machine)

    def maintain(self, verb: str, name: str) -> s.Outcome:
        return self._call("POST", f"/v1/machines/{_segment(name)}/{verb}", s.Outcome)

    def restore(self, name: str) -> s.Machine:
        return self._call("POST", f"/v1/machines/{_segment(name)}/restore", s.Machine)

    def groups(self) -> list[s.Group]:
        return self._call("GET", "/v1/groups", list[s.Group])

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

    def clock(self) -> s.Clock:
        return self._call("GET", "/v1/clock", s.Clock)

    def advance(self, request: s.AdvanceRequest) -> s.Clock:
        return self._call("POST", "/v1/clock/advance", s.Clock, body=request)

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
            try:
                raise ControlError(msgspec.json.decode(answer, type=s.Problem).detail)
            except msgspec.MsgspecError:
                raise ControlError(f"{self.url}{path} answered {status}") from None
        try:
            return msgspec.json.decode(answer, type=type)
        except msgspec.MsgspecError as error:
            raise ControlError(f"{self.url} is not a forewarn of this version: {error}") from error

    def _exchange(self, method: str, target: str, body: object) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        headers: dict[str, Any] = {"Content-Type": "application/json"}
        try:
            connection = http.client.HTTPConnection(
                parts.hostname or "", parts.port or 80, timeout=TIMEOUT
            )
            try:
                data = None if body is None else msgspec.json.encode(body)
                connection.request(method, parts.path + target, data, headers)
                response = connection.getresponse()
                return response.status, response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ControlError(f"no service answers at {self.url}: {error}") from error


def _segment(text: str) -> str:
    return quote(text, safe="")
