"""Runs all checks of the judge on a trace.

First each answer by itself, then documents compared with each other, then their order in time, then
starts and impacts. The rules are in the other modules.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .answers.answer import Answers, header
from .answers.failed_polls import judge_failed
from .answers.incarnation import judge_complete, judge_idle, judge_unchanged
from .answers.request import Request, plain_tag, read_request
from .answers.sightings import Sightings
from .dialect import Version
from .events.approvals import EarliestApprovals, Holds, Post, judge_accepted
from .events.coupling import Couplings
from .events.disconnected import DisconnectedMachines
from .events.event_course import EventCourse
from .events.held_starts import HeldStarts
from .events.host_maintenance import HostMaintenance
from .events.impacts import Timing
from .events.joints import JointProgress, Joints
from .events.returns import Returns
from .findings import Findings, Judgement
from .holds.standing_holds import StandingHolds
from .holds.unannounced import UnannouncedEvents, judge_shown
from .holds.windows import Windows
from .reading.disconnected_times import DisconnectedTimes
from .reading.document import Document, read_document
from .reading.facts import Facts
from .reading.fleet import Caller, Fleets
from .reading.gaps import Gaps
from .reading.order import Order, Periods, Sighting
from .reading.pauses import Pauses
from .reading.recording_file import read_files
from .reading.records import Exchange, Pairs, Trace
from .reading.trace import read_trace

# The document is None for a 304.
_Read = tuple[Exchange, Request, Caller, Document | None]


def judge(records: Iterable[Mapping[str, object]]) -> Judgement:
    """Return the promises that a recording proves broken."""
    return _TraceJudge(read_trace(records)).judge()


def judge_files(paths: Sequence[Path]) -> Judgement:
    """Judge JSON Lines files, merged by time; lines that cannot be read are counted."""
    return _TraceJudge(read_trace(read_files(paths))).judge()


class _TraceJudge:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._findings = Findings()
        self._fleets = Fleets(trace)
        self._order = Order(trace)
        self._gaps = Gaps(trace)
        self._disconnected = DisconnectedTimes(trace)
        self._requests: dict[tuple[str, str, Pairs, bytes], Request] = {}
        self._documents: dict[tuple[bytes, Version], Document] = {}
        self._tagged: dict[tuple[str, Version, str], Document | None] = {}

    def judge(self) -> Judgement:
        trace, gaps, findings = self._trace, self._gaps, self._findings
        approvals = EarliestApprovals(trace, gaps)
        joints, windows, unannounced = Joints(trace), Windows(trace), UnannouncedEvents(trace)
        sightings = Sightings()
        couplings = Couplings(trace, self._order, approvals, findings)
        answers = Answers(findings, trace)
        posts, reads, unclear = self._judge_answers(answers, approvals)
        hidden = gaps.hidden_disables([(read[0], read[2], read[3]) for read in reads if read[3]])
        if hidden:
            disabled = sorted((*trace.disabled, *hidden), key=lambda line: line.t)
            trace = self._trace = replace(trace, disabled=tuple(disabled))
        documents_seen = self._sightings(reads)
        facts = Facts(self._fleets, gaps, findings, trace.postponed)
        for sighting in documents_seen:
            facts.add(sighting)
            sightings.add(sighting)
            if not sighting.disconnected:
                couplings.add(sighting)
        sightings.finish()
        facts.finish(sightings.first_scheduled, trace.short_notices)
        standing = StandingHolds(trace, facts, self._disconnected)
        holds = Holds(JointProgress(joints), windows, unannounced, standing)
        course = EventCourse(
            trace, self._order, gaps, self._fleets, facts, holds, approvals, sightings, findings
        )
        located = [sighting for sighting in documents_seen if sighting.caller.key is not None]
        posts_located = [post for post in posts if post.caller.key is not None]
        course.walk(
            [*located, *(post for post in posts_located if not post.certainly_disconnected)]
        )
        judge_failed(answers, located, trace, self._order, self._disconnected, self._fleets)
        DisconnectedMachines(trace, self._disconnected, self._order, findings).judge(
            located, posts_located
        )
        located = [sighting for sighting in located if not sighting.disconnected]
        judge_complete(trace, located, unclear, self._order, facts, findings)
        judge_unchanged(trace, gaps, located, findings)
        judge_idle(trace, gaps, located, self._order, findings)
        gapless = trace.gapless
        for post in posts:
            judge_accepted(post, facts, self._fleets, unannounced, gapless, findings)
        pauses = Pauses(trace)
        timing = Timing(trace, gaps, approvals, pauses, joints, findings)
        timing.judge(trace.impacts, sightings, facts, course.delisted())
        host_maintenance = HostMaintenance(trace, self._order, gaps, approvals, pauses, findings)
        host_maintenance.judge(joints, sightings, trace.impacts, facts)
        couplings.judge(trace.impacts)
        windows.judge(sightings, trace.impacts, findings)
        HeldStarts(trace, gaps, standing, approvals, sightings, facts, findings).judge()
        judge_shown(trace, unannounced, facts, findings)
        Returns(trace, self._fleets, findings).judge()
        return Judgement(
            findings.all(),
            exchanges=len(trace.exchanges),
            events=len(facts.events.keys() | {impact.event for impact in trace.impacts}),
            machines=len(
                {
                    caller.machine
                    for exchange in trace.exchanges
                    if (caller := self._fleets.caller(exchange)).machine
                }
            ),
            impacts=len(trace.impacts),
            unreadable=trace.unreadable + trace.torn,
        )

    def _judge_answers(
        self, answers: Answers, approvals: EarliestApprovals
    ) -> tuple[list[Post], list[_Read], list[Exchange]]:
        """Judge each answer by itself.

        Return approvals, documents, and answers that should be documents and are not.
        """
        posts: list[Post] = []
        reads: list[_Read] = []
        unclear: list[Exchange] = []
        for exchange in self._trace.exchanges:
            request = self._request(exchange)
            if exchange.method == "POST":
                approvals.add(exchange, request)
            if exchange.fault or exchange.status is None:
                continue
            caller = self._fleets.caller(exchange)
            answers.check(exchange, request, caller)
            if exchange.method == "POST" and request.well_formed_approval:
                posts.append(self._post(exchange, request, caller))
            if exchange.method != "GET" or request.version is None:
                continue
            if exchange.status == 200:
                document = self._document(exchange, request.version, caller)
                self._remember_tag(exchange, document, caller)
                if document.events is not None:
                    reads.append((exchange, request, caller, document))
                else:
                    unclear.append(exchange)
            elif exchange.status == 304:
                reads.append((exchange, request, caller, None))
                unclear.append(exchange)
        return posts, reads, unclear

    def _post(self, exchange: Exchange, request: Request, caller: Caller) -> Post:
        disconnected = self._disconnected.touched(exchange, caller.machine)
        certainly = disconnected is not None and self._disconnected.within(exchange, disconnected)
        return Post(exchange, request, caller, disconnected, certainly)

    def _request(self, exchange: Exchange) -> Request:
        key = (exchange.method, exchange.target, exchange.headers, exchange.body)
        request = self._requests.get(key)
        if request is None:
            request = self._requests[key] = read_request(*key)
        return request

    def _document(self, exchange: Exchange, version: Version, caller: Caller) -> Document:
        document = self._documents.get((exchange.answer, version))
        if document is None:
            document = read_document(exchange.answer, version)
            self._documents[exchange.answer, version] = document
        for flaw in document.flaws:
            self._findings.add(
                flaw.rule,
                flaw.message,
                t=exchange.t,
                event=flaw.event,
                group=caller.group,
                machine=caller.machine,
            )
        return document

    def _remember_tag(self, exchange: Exchange, document: Document, caller: Caller) -> None:
        tag = header(exchange.answer_headers or (), "etag")
        if tag is None or caller.key is None:
            return
        key = (caller.key, document.version, plain_tag(tag))
        if self._tagged.setdefault(key, document) is not document:
            self._tagged[key] = None  # two documents under one tag: it identifies neither

    def _sightings(self, reads: list[_Read]) -> list[Sighting]:
        periods = Periods(self._trace)
        sightings: list[Sighting] = []
        for exchange, request, caller, document in sorted(reads, key=lambda read: read[0].asked):
            # A 304 counts as a poll even if its document is not known.
            disconnected = self._disconnected.touched(exchange, caller.machine)
            period = None
            if caller.key is not None and disconnected is not None:
                period = periods.period_while_disconnected(exchange, caller, disconnected)
            elif caller.key is not None:
                period = periods.period(exchange, caller)
            if document is None:
                document = self._document_of_304(exchange, request, caller)
            if document is not None and document.events is not None:
                seen = Sighting(exchange, document, caller, period, disconnected is not None)
                sightings.append(seen)
        return sightings

    def _document_of_304(
        self, exchange: Exchange, request: Request, caller: Caller
    ) -> Document | None:
        """Return the document that a 304 declares to be current."""
        tag = header(exchange.answer_headers or (), "etag")
        tags = request.tags or ()
        if tag is not None and plain_tag(tag) in tags:
            tags = (plain_tag(tag),)
        if len(tags) != 1 or caller.key is None or request.version is None:
            return None
        return self._tagged.get((caller.key, request.version, tags[0]))
