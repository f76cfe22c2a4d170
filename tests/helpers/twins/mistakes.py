"""The buggy twins of `worker.Worker`: each makes one mistake that people really make.

The first sentence of a docstring tells the mistake.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from helpers.twins.worker import EVENTS, HARMLESS, Event, Worker

A_WHILE = 50  # intervals between two polls

# Requests.


class OmitsHeader(Worker):
    """sends no `Metadata` header when it asks for events"""

    def events(self) -> list[Event] | None:
        self.headers = {}
        return super().events()


class UsesWrongVersion(Worker):
    """uses the api-version of the instance metadata for events"""

    api_version = "2021-02-01"


class UsesOldVersion(Worker):
    """uses an old api-version, which has neither Preempt nor Terminate"""

    api_version = "2017-08-01"


class UsesProxy(Worker):
    """asks for events through a proxy, which adds `X-Forwarded-For`"""

    def events(self) -> list[Event] | None:
        self.headers = {"Metadata": "true", "X-Forwarded-For": "10.0.0.4"}
        return super().events()


class MisspellsPath(Worker):
    """requests `/metadata/scheduled-events`"""

    def events(self) -> list[Event] | None:
        target = EVENTS.replace("scheduledevents", "scheduled-events")
        answer = self.ask("GET", target.format(self.api_version))
        return None if answer is None else self.parse(answer)


# When it polls.


class PollsEveryMinute(Worker):
    """polls once a minute"""

    def pause(self) -> float:
        return 60.0


class Hammers(Worker):
    """polls without a pause"""

    def pause(self) -> float:
        return 0.001


class RetriesAtOnce(Worker):
    """repeats a request without a pause when it is throttled"""

    def pause(self) -> float:
        return 0.001 if self.failures else self.every


class GivesUp(Worker):
    """stops polling after the first answer that is not a document"""

    def pause(self) -> float:
        return 3600.0 if self.failures else self.every


class StopsAfterFirstEvent(Worker):
    """stops polling after its first event is over"""

    handled = False

    def resume(self) -> None:
        super().resume()
        self.handled = True

    def pause(self) -> float:
        return 3600.0 if self.handled else self.every


class DrainsSlowly(Worker):
    """does not poll while it drains, which takes longer than the notice"""

    drain_intervals = 3_000


# How it reads answers.


class DiesOfErrorStatus(Worker):
    """raises an exception for 410, 429 or 500"""

    def ask(self, method: str, target: str, body: bytes | None = None) -> bytes | None:
        try:
            status, answer = self.send(method, target, body)
        except (OSError, http.client.HTTPException):
            return None
        if status != 200:
            raise http.client.HTTPException(f"the endpoint answered {status}")
        return answer


class DiesOfBadAnswer(Worker):
    """expects every answer with status 200 to be a complete document"""

    def parse(self, answer: bytes) -> list[Event] | None:
        events: list[Event] = json.loads(answer)["Events"]
        return events


class DiesOfTimeout(Worker):
    """raises an exception when a connection breaks or an answer takes too long"""

    def ask(self, method: str, target: str, body: bytes | None = None) -> bytes | None:
        status, answer = self.send(method, target, body)
        return answer if status == 200 else None


class HasNoTimeout(Worker):
    """sets no time-out for its requests"""

    timeout = None


class DiesOfEmptyNotBefore(Worker):
    """parses `NotBefore` of every event, which is empty once an event has started"""

    def handle(self, events: list[Event]) -> None:
        events.sort(key=lambda event: parsedate_to_datetime(event["NotBefore"]))
        super().handle(events)


class DiesOfUnknownType(Worker):
    """looks up what to do in a table that has neither Preempt nor Terminate"""

    actions: Mapping[str, bool] = {"Freeze": False, "Reboot": True, "Redeploy": True}

    def disturbs(self, event: Event) -> bool:
        return self.is_own(event) and self.actions[event["EventType"]]


class TakesErrorForNoEvents(Worker):
    """takes an error for a document without events, and resumes its work"""

    def events(self) -> list[Event] | None:
        return super().events() or []


class TakesNotModifiedForNoEvents(Worker):
    """sends `If-None-Match` and takes 304 for a document without events"""

    drain_intervals = A_WHILE
    tag = ""

    def send(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self.address, timeout=self.timeout)
        conditional = {"If-None-Match": self.tag} if self.tag and method == "GET" else {}
        try:
            connection.request(method, target, body, {**self.headers, **conditional})
            response = connection.getresponse()
            answer = response.read()
            if response.status == 304:
                return 200, b'{"Events":[]}'
            if method == "GET" and "scheduledevents" in target:
                self.tag = response.headers["ETag"] or ""
            return response.status, answer
        finally:
            connection.close()


class NamesNoTag(Worker):
    """sends `If-None-Match: *`, and takes 304 for the document that it got first"""

    first = b""

    def ask(self, method: str, target: str, body: bytes | None = None) -> bytes | None:
        try:
            status, answer = self.send(method, target, body)
        except (OSError, http.client.HTTPException):
            return None
        if method == "GET" and target.startswith("/metadata/scheduledevents") and status == 200:
            self.first = answer
            self.headers = {**self.headers, "If-None-Match": "*"}
        return {200: answer, 304: self.first}.get(status)


class ExpectsLargerIncarnation(Worker):
    """ignores a document whose `DocumentIncarnation` is not larger than the last one"""

    last = 0

    def parse(self, answer: bytes) -> list[Event] | None:
        events = super().parse(answer)
        if events is not None:
            self.incarnation = json.loads(answer)["DocumentIncarnation"]
        return events

    def handle(self, events: list[Event]) -> None:
        if self.incarnation <= self.last:
            return
        self.last = self.incarnation
        super().handle(events)


class ReadsFirstEventOnly(Worker):
    """handles only the first event of a document"""

    def handle(self, events: list[Event]) -> None:
        super().handle(events[:1])


class ComparesHostName(Worker):
    """looks for its host name in `Resources`"""

    def own_name(self) -> str:
        return socket.gethostname()


class ComparesSubstring(Worker):
    """searches for its name in the text of `Resources`, so that web_1 also matches web_10"""

    def is_own(self, event: Event) -> bool:
        return self.name in ",".join(event["Resources"])


class KnowsOnlyNewEvents(Worker):
    """handles only events that are announced while it runs"""

    earlier: set[str] | None = None

    def disturbs(self, event: Event) -> bool:
        return super().disturbs(event) and event["EventId"] not in (self.earlier or ())

    def handle(self, events: list[Event]) -> None:
        if self.earlier is None:
            self.earlier = {event["EventId"] for event in events}
        super().handle(events)


# What it does about events.


class IgnoresUserEvents(Worker):
    """handles only events whose `EventSource` is Platform"""

    def disturbs(self, event: Event) -> bool:
        return super().disturbs(event) and event["EventSource"] == "Platform"


class KnowsOnlyReboot(Worker):
    """handles only events of type Reboot"""

    def disturbs(self, event: Event) -> bool:
        return self.is_own(event) and event["EventType"] == "Reboot"


class IgnoresRedeploy(Worker):
    """ignores Redeploy together with Freeze"""

    def disturbs(self, event: Event) -> bool:
        return super().disturbs(event) and event["EventType"] != "Redeploy"


class IgnoresTerminate(Worker):
    """ignores Terminate, since the machine is deleted anyway"""

    def disturbs(self, event: Event) -> bool:
        return super().disturbs(event) and event["EventType"] != "Terminate"


class ApprovesFreeze(Worker):
    """drains and approves for a Freeze as for a Reboot"""

    def disturbs(self, event: Event) -> bool:
        return self.is_own(event)


class ApprovesEverything(Worker):
    """approves every event in the document, whichever machine it is about"""

    def handle(self, events: list[Event]) -> None:
        super().handle(events)
        for event in events:
            if event["EventType"] != HARMLESS and self.awaits_approval(event):
                self.approve(event)
                self.approved.add(event["EventId"])


class DrainsForOthers(Worker):
    """stops its work for events of other machines as well"""

    def is_own(self, event: Event) -> bool:
        return True

    def awaits_approval(self, event: Event) -> bool:
        return super().is_own(event) and super().awaits_approval(event)


class NeverApproves(Worker):
    """drains, but neither approves nor reports that it is ready"""

    def awaits_approval(self, event: Event) -> bool:
        return False


class ApprovesAtLastMinute(Worker):
    """drains and approves only in the last ten minutes before `NotBefore`"""

    now = 0.0

    def send(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self.address, timeout=self.timeout)
        try:
            connection.request(method, target, body, dict(self.headers))
            response = connection.getresponse()
            self.now = parsedate_to_datetime(response.headers["Date"]).timestamp()
            return response.status, response.read()
        finally:
            connection.close()

    def disturbs(self, event: Event) -> bool:
        if not super().disturbs(event) or event["EventStatus"] == "Started":
            return super().disturbs(event)
        return parsedate_to_datetime(event["NotBefore"]).timestamp() - self.now < 600


class ApprovesBeforeDraining(Worker):
    """approves as soon as it sees the event, and drains afterwards, which takes a while"""

    drain_intervals = A_WHILE

    def handle(self, events: list[Event]) -> None:
        for event in events:
            if self.disturbs(event) and self.awaits_approval(event) and self.approve(event):
                self.approved.add(event["EventId"])
        super().handle(events)


class ApprovesAgainAndAgain(Worker):
    """approves an event with every poll until it has started"""

    def awaits_approval(self, event: Event) -> bool:
        return bool(event["EventStatus"] == "Scheduled")


class ApprovesStarted(Worker):
    """approves events that have already started, once"""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.approved_late: set[str] = set()

    def awaits_approval(self, event: Event) -> bool:
        return event["EventId"] not in self.approved_late and (
            event["EventStatus"] == "Started" or super().awaits_approval(event)
        )

    def approve(self, event: Event) -> bool:
        approved = super().approve(event)
        if approved and event["EventStatus"] == "Started":
            self.approved_late.add(event["EventId"])
        return approved


class ApprovesWithdrawn(Worker):
    """keeps a list of events to approve, and does not remove those that were withdrawn"""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.pending: dict[str, Event] = {}

    def handle(self, events: list[Event]) -> None:
        self.pending |= {event["EventId"]: event for event in events if self.disturbs(event)}
        for event in events:
            if event["EventStatus"] == "Started":
                self.pending.pop(event["EventId"], None)
        listed = {event["EventId"] for event in events}
        for id, event in list(self.pending.items()):
            if id not in listed and self.approve(event):
                del self.pending[id]
        super().handle(events)


class ForgetsFailedApproval(Worker):
    """takes an approval for granted, although it was answered with an error"""

    def approve(self, event: Event) -> bool:
        super().approve(event)
        return True


class SendsPlainIds(Worker):
    """sends a list of ids instead of objects with `EventId` in an approval"""

    def approval(self, event: Event) -> bytes:
        return json.dumps({"StartRequests": [event["EventId"]]}).encode()


class SendsWrongId(Worker):
    """sends the name of the machine instead of the id of the event in an approval"""

    def approval(self, event: Event) -> bytes:
        return json.dumps({"StartRequests": [{"EventId": self.name}]}).encode()


class ApprovesWithPut(Worker):
    """sends approvals with PUT"""

    def approve(self, event: Event) -> bool:
        self.log(f"approved {event['EventId']}")
        target = EVENTS.format(self.api_version)
        return self.ask("PUT", target, self.approval(event)) is not None


class NeverResumes(Worker):
    """does not take up its work again when an event is withdrawn"""

    started = False

    def handle(self, events: list[Event]) -> None:
        self.started |= any(
            self.disturbs(event) and event["EventStatus"] == "Started" for event in events
        )
        super().handle(events)

    def resume(self) -> None:
        if self.started:
            super().resume()


class ResumesWhenStarted(Worker):
    """takes up its work again when the event has started, not when it is over"""

    def disturbs(self, event: Event) -> bool:
        return super().disturbs(event) and event["EventStatus"] == "Scheduled"


def _kebab(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]


MISTAKES: dict[str, type[Worker]] = {
    _kebab(kind.__name__): kind for kind in Worker.__subclasses__() if kind.__module__ == __name__
}
