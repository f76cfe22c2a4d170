"""Hears the lines of a trace one by one and keeps what a verdict needs of them, within bounds.

A poll that shows nothing new costs a few counts. No line is ever a reason to fail: what cannot be
understood is passed over. What a request does wrong is `request_rules.py`; what only the whole
shows is `conduct_rules.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from forewarn.traces import lines
from forewarn.traces.exchanges import Exchange, Stamp, exchange, stamp
from forewarn.verdict import conduct_rules
from forewarn.verdict.clients import Client
from forewarn.verdict.complaints import Complaints, in_order
from forewarn.verdict.documents import Documents, ShownDocument
from forewarn.verdict.event_courses import FINISHED, STARTED, WITHDRAWN, EventCourse
from forewarn.verdict.known import Known
from forewarn.verdict.request_rules import RequestRules
from forewarn.verdict.values import Unannounced
from forewarn.verdict.verdict import Verdict
from forewarn.wire import extensions, requests
from forewarn.wire.versions import NEWEST

ENDS = {"finish": FINISHED, "withdraw": WITHDRAWN}


class Observer:
    """May be heard and asked from different threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._register = Known()
        self._sights = Documents()
        self._docket = Complaints()
        self._manners = RequestRules(self._register, self._docket)
        self._now: Stamp | None = None
        self._misunderstood = 0

    def add(self, line: Mapping[str, Any]) -> None:
        """One line of a trace, as it happens."""
        with self._lock:
            try:
                self._add(line)
            except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
                self._misunderstood += 1

    def verdict(self) -> Verdict:
        """As things stand now."""
        with self._lock:
            register, docket = self._register, self._docket
            complaints = docket.complaints()
            if self._now is not None:
                complaints += conduct_rules.complaints(register, self._now)
            courses = [
                course
                for one in register.happenings.values()
                for way in one.ways.values()
                if (course := one.course(way, register.clients.get(way.machine))) is not None
            ]
            return Verdict(
                at=self._now.t if self._now else None,
                courses=tuple(sorted(courses, key=lambda c: c.visible)),
                unannounced=tuple(register.unannounced.values()),
                conducts=tuple(client.conduct() for _, client in sorted(register.clients.items())),
                complaints=in_order(complaints),
                remarks=tuple(self._remarks()),
            )

    def forget(self) -> None:
        """Begin anew: who is who and what is going on is still known, but nothing is held
        against anybody."""
        with self._lock:
            self._register.forget()
            self._docket = Complaints()
            self._manners = RequestRules(self._register, self._docket)
            self._misunderstood = 0

    def _remarks(self) -> list[str]:
        remarks = list(self._register.remarks())
        if self._docket.left_out:
            remarks.append(f"{self._docket.left_out} more complaints are left out")
        if self._misunderstood:
            remarks.append(f"{self._misunderstood} lines could not be understood")
        return remarks

    def _add(self, line: Mapping[str, Any]) -> None:
        now = stamp(line)
        if now is None:
            return
        kind = line.get("kind")
        real = now.real if now.real is not None or self._now is None else self._now.real
        self._now = Stamp(max(now.t, self._now.t) if self._now else now.t, real)
        match kind:
            case "exchange":
                self._exchange(exchange(line, now))
            case "event":
                self._event(line, now)
            case "fleet":
                self._register.fleet(line)
            case "approval":
                found = self._known(line)
                if found is not None:
                    found.approve(lines.name(line.get("by")) or "an operator", now.t)
            case "impact":
                found = self._known(line)
                if found is not None and found.impact is None:
                    found.impact = now.t
                self._unannounced_step(line, impact=now.t)
            case "unannounced":
                self._unannounced(line, now)
            case "over":
                self._unannounced_step(line, over=now.t)
            case "disabled":
                for one in self._register.active.get(lines.name(line.get("group")), {}).values():
                    one.hidden = True
            case "up" | "down" | "step":
                self._register.outages.append(now.t)
                for client in self._register.clients.values():
                    client.pause(self._now)

    def _known(self, line: Mapping[str, Any]) -> EventCourse | None:
        return self._register.happenings.get(lines.name(line.get("event")).upper())

    def _unannounced(self, line: Mapping[str, Any], now: Stamp) -> None:
        id = lines.name(line.get("event")).upper()
        if id:
            self._register.carried_out_unannounced(
                Unannounced(
                    event=id,
                    group=lines.name(line.get("group")),
                    type=lines.name(line.get("type")),
                    source=lines.name(line.get("source")),
                    machines=lines.names(line.get("machines")),
                    at=now.t,
                )
            )

    def _unannounced_step(self, line: Mapping[str, Any], **times: float) -> None:
        """Keep the first time of each step, since lines may be written again after a restart."""
        known = self._register.unannounced.get(lines.name(line.get("event")).upper())
        if known is None:
            return
        new = {name: t for name, t in times.items() if getattr(known, name) is None}
        type = known.type or lines.name(line.get("type"))
        after = msgspec.structs.replace(known, type=type, **new)
        self._register.unannounced[known.event] = after
        self._register.carried_out_unannounced(after)

    def _event(self, line: Mapping[str, Any], now: Stamp) -> None:
        id, move = lines.name(line.get("event")).upper(), lines.name(line.get("move"))
        if not id:
            return
        it = self._register.happening(id, lines.name(line.get("group")), told=True)
        it.told = True
        it.type, it.source = lines.name(line.get("type")), lines.name(line.get("source"))
        it.machines = lines.names(line.get("machines")) or it.machines
        it.not_before = lines.number(line.get("not_before"))
        it.seconds = lines.number(line.get("seconds"))
        if it.visible is None and line.get("listed") is True and move not in ENDS:
            it.visible = now
        for machine in it.machines:
            self._register.way(it, machine)
        if it.visible is now:
            for way in it.ways.values():
                client = self._register.clients.get(way.machine)
                way.asks_visible = client.asks if client else 0
                way.backing_off = bool(client and (client.trouble or client.paused))
        if move == "strike":
            it.struck = True
        if move in ("strike", "start"):
            self._begin(it, now)
        if move in ENDS:
            it.end(now, ENDS[move], self._register.clients)
            self._register.over(it)

    def _begin(self, it: EventCourse, at: Stamp) -> None:
        if it.started is not None:
            return
        it.begin(at, self._register.clients)
        for machine in it.machines:
            client = self._register.clients.get(machine)
            if client is not None:
                client.paused = True  # until it asks again: something is done to it

    def _exchange(self, it: Exchange) -> None:
        client = self._register.client(it.machine, it.source)
        if client is None:
            return
        client.heard(it)
        match it.ask:
            case requests.GetDocument() | extensions.Wait():
                client.polled(it, waited=isinstance(it.ask, extensions.Wait))
                self._polled(client, it)
            case requests.PostApproval():
                client.approved(it)
                self._manners.approval(client, it)
            case extensions.PutReadiness(event=event):
                self._manners.readiness(client, it, event)
            case _:
                if it.method == "GET" and "scheduledevents" in it.path.lower():
                    client.polled(it, waited=False)
                    self._polled(client, it)
                self._manners.request(client, it)

    def _polled(self, client: Client, it: Exchange) -> None:
        self._register.deserted = False
        sight = None
        if it.status == 200:
            answer = it.answer()
            sight = self._sights.of(it.version, answer, it.tag) if answer is not None else None
        elif it.status == 304:
            sight = self._sights.unchanged(it.version, it.tag)
        usable = it.status == 304 or sight is not None
        self._manners.poll(client, it, usable=usable)
        if sight is None:
            return
        before = client.sights.get(it.version)
        if before is not sight:
            self._shown(client, it, sight)
            if not it.fault:
                self._vanished(client, it, before, sight)
                client.sights[it.version] = sight
        self._blind(client, sight)

    def _shown(self, client: Client, it: Exchange, sight: ShownDocument) -> None:
        register = self._register
        for shown in sight.events.values():
            known = register.happenings.get(shown.id)
            if known is None:
                if it.fault:
                    continue  # which may have made it up
                known = register.happening(shown.id, client.group, told=False)
                known.type, known.source = shown.type, shown.source
                known.machines, known.visible = shown.resources, it.done
                known.seconds = shown.seconds
                known.struck = shown.status == STARTED
                for machine in shown.resources:
                    register.way(known, machine)
            if known.visible is None:
                known.visible = it.done
            if not known.told:
                known.not_before = known.not_before or shown.not_before
                if shown.status == STARTED:
                    self._begin(known, it.done)
            looks_on = client.machine not in known.ways
            way = register.way(known, client.machine)
            if way is not None:
                way.asks_visible -= looks_on  # this poll is one of those that count
                way.shown(shown.status, it.done)

    def _vanished(
        self, client: Client, it: Exchange, before: ShownDocument | None, sight: ShownDocument
    ) -> None:
        for id in before.events if before else ():
            known = self._register.happenings.get(id)
            if known is None or id in sight.events:
                continue
            way = known.ways.get(client.machine)
            if way is not None and way.gone is None:
                way.gone = it.done
            if not known.told:
                known.end(it.done, FINISHED if known.started else "", self._register.clients)
                self._register.over(known)

    def _blind(self, client: Client, sight: ShownDocument) -> None:
        """What stands and this version never shows."""
        if sight.types is None or len(sight.types) == len(NEWEST.types):
            return
        for one in self._register.active.get(client.group, {}).values():
            if one.visible is not None and not sight.shows(one.type):
                way = one.ways.get(client.machine)
                if way is not None and way.seen is None:
                    way.blind = sight.version
