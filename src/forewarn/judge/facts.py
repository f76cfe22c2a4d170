"""What needs no order in time: two documents contradict each other whichever came first.

An event's own facts, the order of events among themselves, who may see whom, and which events
were Started side by side. Each distinct document is looked at once per group.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from .dialect import NEVER_SUDDEN, PATIENT, USER_TYPES
from .document import Document, Event
from .findings import Findings
from .fleet import Fleets, bare
from .order import Sighting

_NAMES = {
    "type": "EventType",
    "not_before": "NotBefore",
    "description": "Description",
    "source": "EventSource",
    "duration": "DurationInSeconds",
}


@dataclass(slots=True)
class Known:
    """What is known of one event from all the documents that show it."""

    facts: dict[str, object] = field(default_factory=dict)
    resources: tuple[str, ...] | None = None  # as later versions name them, if known
    preview_resources: tuple[str, ...] | None = None  # as the preview names them
    groups: dict[str, str] = field(default_factory=dict)  # group: a machine of it that was shown
    seen: float | None = None  # when a document first showed it

    @property
    def not_before(self) -> int | None:
        value = self.facts.get("not_before")
        return value if isinstance(value, int) else None

    def machines(self) -> tuple[tuple[str, ...], ...]:
        """The names the event may mean: two readings where only the preview was seen."""
        if self.resources is not None:
            return (self.resources,)
        shown = self.preview_resources or ()
        return shown, tuple(name.removeprefix("_") for name in shown)


class Facts:
    def __init__(self, fleets: Fleets, findings: Findings) -> None:
        self._fleets = fleets
        self._findings = findings
        self._looked: set[tuple[str | None, bool | None, str | None, Document]] = set()
        self._ranks: dict[str, _Ranks] = {}
        self._beside = _SideBySide()
        self.known: dict[str, Known] = {}

    def look(self, sighting: Sighting) -> None:
        caller, document = sighting.caller, sighting.document
        # A machine that changed its group saw more than one group's documents, rightly.
        group = None if caller.machine in self._fleets.moved else caller.group
        key = (caller.key, caller.cloud_service, group, document)
        if key in self._looked:
            return
        self._looked.add(key)
        assert document.events is not None
        for event in document.events:
            known = self.known.setdefault(event.id, Known(seen=sighting.exchange.t))
            self._compare(event, known, sighting)
            if group is not None:
                self._keep_apart(event, known, group, sighting)
            self._check_names(event, sighting)
        if caller.key is not None:
            ids = tuple(event.id for event in document.events)
            clash = self._ranks.setdefault(caller.key, _Ranks()).clash(ids)
            if clash is not None:
                message = f"{clash[0]} and {clash[1]} have changed places."
                self._findings.add_seen("events-order", message, sighting, clash[0])
        self._beside.look(sighting)

    def _compare(self, event: Event, known: Known, sighting: Sighting) -> None:
        for name, title in _NAMES.items():
            value = getattr(event, name)
            if value is None:
                continue
            before = known.facts.setdefault(name, value)
            if before != value:
                message = f"{title} was {before!r} and is {value!r}."
                self._findings.add_seen("changed-facts", message, sighting, event.id)
        preview = sighting.document.version.preview
        shown = bare(event.resources, preview, sighting.caller.cloud_service)
        if preview and sighting.caller.cloud_service is None:
            if known.preview_resources is None:
                known.preview_resources = shown
            other = known.preview_resources
        else:
            if known.resources is None:
                known.resources = shown
            other = known.resources
        fits = other == shown
        if fits and known.resources is not None and known.preview_resources is not None:
            with_mark = tuple(f"_{name}" for name in known.resources)
            other = known.resources
            fits = known.preview_resources in (known.resources, with_mark)
        if not fits:
            message = f"Resources were {_list(other)} and are {_list(shown)}."
            self._findings.add_seen("changed-facts", message, sighting, event.id)

    def _keep_apart(self, event: Event, known: Known, group: str, sighting: Sighting) -> None:
        machine = sighting.caller.machine
        assert machine is not None
        for other, witness in known.groups.items():
            if other != group:
                message = (
                    f"The event was shown to {witness} of {other} and to {machine} of {group}."
                )
                self._findings.add_seen("leak-event", message, sighting, event.id)
        known.groups.setdefault(group, machine)
        preview = sighting.document.version.preview
        if preview and sighting.caller.cloud_service is None:
            return
        names = bare(event.resources, preview, sighting.caller.cloud_service)
        for name in names:
            seat = self._fleets.seats.get(name)
            if seat is not None and seat.group != group and name not in self._fleets.moved:
                message = f"{machine} of {group} was shown {name} of {seat.group}."
                self._findings.add_seen("leak-resource", message, sighting, event.id)
        domains = self._fleets.domain(names)
        if domains is not None and len(domains) > 1:
            message = f"{_list(names)} lie in {len(domains)} update domains."
            self._findings.add_seen("domain-split", message, sighting, event.id)

    def _check_names(self, event: Event, sighting: Sighting) -> None:
        cloud, version = sighting.caller.cloud_service, sighting.document.version
        for name in event.resources:
            if version.preview and cloud is False:
                wrong = not name.startswith("_")
            else:
                # The underscore is not part of the name if only the name without it is known.
                wrong = (
                    name.startswith("_")
                    and (cloud is True or not version.preview)
                    and name not in self._fleets.seats
                    and name.removeprefix("_") in self._fleets.seats
                )
            if wrong:
                message = f"A machine is named {name} in {version.name}."
                self._findings.add_seen("resource-name", message, sighting, event.id)

    def finish(self, scheduled: Container[str], sudden: Container[str]) -> None:
        """Accuse events that started beside one they had to wait for.

        `scheduled` are those that were ever seen Scheduled, `sudden` those that are known to have
        started without notice. Of two that both had to wait, one had to wait for the other,
        whichever was first and even if they started in the same commit.
        """

        def waits(event: Event) -> bool:
            announced = event.id in scheduled or event.type in NEVER_SUDDEN
            return event.type in PATIENT and announced and event.id not in sudden

        for one, other, sighting in self._beside.started_together():
            for late, early in ((one, other), (other, one)):
                if self._beside.waited(late, early):
                    if late.type in PATIENT:
                        self._judge_pair(late, early, sighting, known_order=True)
                    break
            else:
                if waits(one) and waits(other):
                    self._judge_pair(other, one, sighting, known_order=False)

    def _judge_pair(
        self, late: Event, early: Event, sighting: Sighting, *, known_order: bool
    ) -> None:
        caller, preview = sighting.caller, sighting.document.version.preview
        mine = bare(late.resources, preview, caller.cloud_service)
        theirs = bare(early.resources, preview, caller.cloud_service)
        shared = [name for name in mine if name in theirs]
        if shared:
            how = "It started while" if known_order else "It is Started while"
            message = f"{how} {early.id} was Started on {shared[0]} too."
            self._findings.add_seen("machine-overlap", message, sighting, late.id)
            return
        # Users do not wait for the domain slot. Where the order of the two is not known, neither
        # of them may be a user's.
        if not self._by_platform(late) or not (known_order or self._by_platform(early)):
            return
        one, other = self._fleets.domain(mine), self._fleets.domain(theirs)
        if one is not None and other is not None and one != other:
            how = "It started while" if known_order else "It is Started while"
            message = f"{how} {early.id} was Started in another update domain."
            self._findings.add_seen("domain-overlap", message, sighting, late.id)

    def _by_platform(self, event: Event) -> bool:
        """Whether the platform asked for it. EventSource is shown from 2019-08-01 on."""
        source = self.known[event.id].facts.get("source")
        return source == "Platform" or (source is None and event.type not in USER_TYPES)


class _Ranks:
    """The order in which events were raised, as far as documents have shown it."""

    def __init__(self) -> None:
        self._rank: dict[str, int] = {}
        self._seen: set[tuple[str, ...]] = set()
        self._with: dict[str, list[tuple[str, ...]]] = {}

    def clash(self, ids: tuple[str, ...]) -> tuple[str, str] | None:
        if ids in self._seen:
            return None
        self._seen.add(ids)
        ranks = [self._rank.get(id, len(self._rank)) for id in ids]
        found = None
        if any(one > other for one, other in pairwise(ranks)):
            # Either a clash, or events that were never seen together were ranked by chance.
            others = {seen for id in ids for seen in self._with.get(id, ())}
            found = min(filter(None, (_swapped(ids, seen) for seen in others)), default=None)
        for id in ids:
            self._rank.setdefault(id, len(self._rank))
            self._with.setdefault(id, []).append(ids)
        return found


def _swapped(ids: tuple[str, ...], seen: tuple[str, ...]) -> tuple[str, str] | None:
    place = {id: number for number, id in enumerate(seen)}
    common = [id for id in ids if id in place]
    for one, other in pairwise(common):
        if place[one] > place[other]:
            return one, other
    return None


class _SideBySide:
    """Pairs of events that stood Started in one document.

    Since no event goes backwards, a document that shows one Scheduled while the other was Started
    proves in which order they started, whatever the clocks say. Ids are unique, so documents of
    all groups, and those of which nobody knows who asked for them, are kept together.
    """

    def __init__(self) -> None:
        self._waited: set[tuple[str, str]] = set()
        self._both: dict[tuple[str, str], tuple[Event, Event, Sighting]] = {}

    def look(self, sighting: Sighting) -> None:
        assert sighting.document.events is not None
        started = [event for event in sighting.document.events if event.started]
        if not started:
            return
        for event in sighting.document.events:
            if not event.started:
                self._waited.update((event.id, early.id) for early in started)
        for one, other in combinations(sorted(started, key=lambda event: event.id), 2):
            self._both.setdefault((one.id, other.id), (one, other, sighting))

    def waited(self, late: Event, early: Event) -> bool:
        """Whether the one was seen Scheduled while the other was Started."""
        return (late.id, early.id) in self._waited

    def started_together(self) -> Iterable[tuple[Event, Event, Sighting]]:
        """Each pair once, with the first document that shows both Started."""
        return self._both.values()


def _list(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(names) + "]"
