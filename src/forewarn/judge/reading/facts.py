"""Judges what does not depend on time: documents that contradict each other in any order.

That is the facts of an event, the order of events in a document, which groups see an event, and
which events were Started at the same time. Each distinct document is checked once per group.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from forewarn.judge.dialect import ALWAYS_ANNOUNCED, USER_TYPES, WAITING_TYPES
from forewarn.judge.findings import Findings

from .document import Document, Event
from .fleet import Fleets, machine_names
from .gaps import Gaps
from .order import Sighting

_NAMES = {
    "type": "EventType",
    "not_before": "NotBefore",
    "description": "Description",
    "source": "EventSource",
    "duration": "DurationInSeconds",
}


@dataclass(slots=True)
class EventFacts:
    """The facts of one event, from all documents that list it."""

    facts: dict[str, object] = field(default_factory=dict)
    resources: tuple[str, ...] | None = None  # in later versions, if known
    preview_resources: tuple[str, ...] | None = None  # in the preview version
    # Group -> a machine of it that was shown the event.
    groups: dict[str, str] = field(default_factory=dict)
    seen: float | None = None  # time of the first document that lists it

    @property
    def not_before(self) -> int | None:
        value = self.facts.get("not_before")
        return value if isinstance(value, int) else None

    def machines(self) -> tuple[tuple[str, ...], ...]:
        """Return the possible machine names: two readings if only the preview version was seen."""
        if self.resources is not None:
            return (self.resources,)
        names = self.preview_resources or ()
        return names, tuple(name.removeprefix("_") for name in names)


class Facts:
    def __init__(
        self,
        fleets: Fleets,
        gaps: Gaps,
        findings: Findings,
        postponed: Mapping[str, frozenset[int]],
    ) -> None:
        self._gaps = gaps
        self._postponed = postponed
        self._fleets = fleets
        self._findings = findings
        self._checked: set[tuple[str | None, bool | None, str | None, Document]] = set()
        self._ranks: dict[str, _ListOrder] = {}
        self._started_pairs = _StartedPairs()
        self.events: dict[str, EventFacts] = {}

    def add(self, sighting: Sighting) -> None:
        caller, document = sighting.caller, sighting.document
        # A machine that changed its group saw more than one group's documents, rightly.
        group = None if caller.machine in self._fleets.moved else caller.group
        key = (caller.key, caller.cloud_service, group, document)
        if key in self._checked:
            return
        self._checked.add(key)
        assert document.events is not None
        for event in document.events:
            event_facts = self.events.setdefault(event.id, EventFacts(seen=sighting.exchange.t))
            self._compare(event, event_facts, sighting)
            if group is not None:
                self._check_groups(event, event_facts, group, sighting)
            self._check_names(event, sighting)
        if caller.key is not None:
            ids = tuple(event.id for event in document.events)
            clash = self._ranks.setdefault(caller.key, _ListOrder()).clash(ids)
            if clash is not None:
                message = f"The order of {clash[0]} and {clash[1]} has changed."
                self._findings.add_seen("events-order", message, sighting, clash[0])
        self._started_pairs.add(sighting)

    def _compare(self, event: Event, event_facts: EventFacts, sighting: Sighting) -> None:
        for name, title in _NAMES.items():
            value = getattr(event, name)
            if value is None:
                continue
            first = event_facts.facts.setdefault(name, value)
            if name == "not_before" and self._postponed_to(max(first, value), event.id, sighting):
                event_facts.facts[name] = max(first, value)
            elif first != value:
                message = f"{title} was {first!r} and is {value!r}."
                self._findings.add_seen("changed-facts", message, sighting, event.id)
        preview = sighting.document.version.preview
        resources = machine_names(event.resources, preview, sighting.caller.cloud_service)
        if preview and sighting.caller.cloud_service is None:
            if event_facts.preview_resources is None:
                event_facts.preview_resources = resources
            first_resources = event_facts.preview_resources
        else:
            if event_facts.resources is None:
                event_facts.resources = resources
            first_resources = event_facts.resources
        matches = first_resources == resources
        if (
            matches
            and event_facts.resources is not None
            and event_facts.preview_resources is not None
        ):
            with_mark = tuple(f"_{name}" for name in event_facts.resources)
            first_resources = event_facts.resources
            matches = event_facts.preview_resources in (event_facts.resources, with_mark)
        if not matches:
            message = f"Resources were {_list(first_resources)} and are {_list(resources)}."
            self._findings.add_seen("changed-facts", message, sighting, event.id)

    def _postponed_to(self, not_before: int, id: str, sighting: Sighting) -> bool:
        exchange = sighting.exchange
        return not_before in self._postponed.get(id, ()) or self._gaps.hide(
            exchange.asked, exchange.t
        )

    def _check_groups(
        self, event: Event, event_facts: EventFacts, group: str, sighting: Sighting
    ) -> None:
        machine = sighting.caller.machine
        assert machine is not None
        for other_group, witness in event_facts.groups.items():
            if other_group != group:
                message = (
                    f"The event was shown to {witness} of {other_group} and to {machine} of"
                    f" {group}."
                )
                self._findings.add_seen("leak-event", message, sighting, event.id)
        event_facts.groups.setdefault(group, machine)
        preview = sighting.document.version.preview
        if preview and sighting.caller.cloud_service is None:
            return
        names = machine_names(event.resources, preview, sighting.caller.cloud_service)
        for name in names:
            listed = self._fleets.machines.get(name)
            if listed is not None and listed.group != group and name not in self._fleets.moved:
                message = f"{machine} of {group} was shown {name} of {listed.group}."
                self._findings.add_seen("leak-resource", message, sighting, event.id)
        domains = self._fleets.domain(names)
        if domains is not None and len(domains) > 1:
            message = f"{_list(names)} are in {len(domains)} domains."
            self._findings.add_seen("domain-split", message, sighting, event.id)

    def _check_names(self, event: Event, sighting: Sighting) -> None:
        cloud, version = sighting.caller.cloud_service, sighting.document.version
        for name in event.resources:
            if version.preview and cloud is False:
                is_wrong = not name.startswith("_")
            else:
                # The underscore is not part of the name if only the name without it is known.
                is_wrong = (
                    name.startswith("_")
                    and (cloud is True or not version.preview)
                    and name not in self._fleets.machines
                    and name.removeprefix("_") in self._fleets.machines
                )
            if is_wrong:
                message = f"A machine is named {name} in {version.name}."
                self._findings.add_seen("resource-name", message, sighting, event.id)

    def finish(self, scheduled: Container[str], sudden: Container[str]) -> None:
        """Report events that started beside one that they had to wait for.

        `scheduled` are those that were ever seen Scheduled, `sudden` those that are known to have
        started without notice. Of two that both had to wait, one had to wait for the other,
        whichever was first and even if they started in the same commit.
        """

        for id, times in self._postponed.items():  # perhaps when nobody asked any more
            facts = self.events.get(id)
            if facts is not None and facts.not_before is not None:
                facts.facts["not_before"] = max(facts.not_before, *times)

        def waits(event: Event) -> bool:
            announced = event.id in scheduled or event.type in ALWAYS_ANNOUNCED
            return event.type in WAITING_TYPES and announced and event.id not in sudden

        for first, second, sighting in self._started_pairs.started_together():
            if any(map(self._gaps.may_hide_event, (first.id, second.id))):
                continue  # one may have started without notice
            for late, early in ((first, second), (second, first)):
                if self._started_pairs.waited(late, early):
                    if late.type in WAITING_TYPES:
                        self._judge_pair(late, early, sighting, known_order=True)
                    break
            else:
                if waits(first) and waits(second):
                    self._judge_pair(second, first, sighting, known_order=False)

    def _judge_pair(
        self, late: Event, early: Event, sighting: Sighting, *, known_order: bool
    ) -> None:
        caller, preview = sighting.caller, sighting.document.version.preview
        late_machines = machine_names(late.resources, preview, caller.cloud_service)
        early_machines = machine_names(early.resources, preview, caller.cloud_service)
        shared = [name for name in late_machines if name in early_machines]
        if shared:
            prefix = "It started while" if known_order else "It is Started while"
            message = f"{prefix} {early.id} was Started on {shared[0]}, too."
            self._findings.add_seen("machine-overlap", message, sighting, late.id)
            return
        # Users do not wait for the domain slot. Where the order of the two is not known, neither
        # of them may be a user's.
        if not self._by_platform(late) or not (known_order or self._by_platform(early)):
            return
        late_domains, early_domains = (
            self._fleets.domain(late_machines),
            self._fleets.domain(early_machines),
        )
        if late_domains is not None and early_domains is not None and late_domains != early_domains:
            prefix = "It started while" if known_order else "It is Started while"
            message = f"{prefix} {early.id} was Started in another domain."
            self._findings.add_seen("domain-overlap", message, sighting, late.id)

    def _by_platform(self, event: Event) -> bool:
        """Return whether the platform raised it. EventSource is shown from 2019-08-01 on."""
        source = self.events[event.id].facts.get("source")
        return source == "Platform" or (source is None and event.type not in USER_TYPES)


class _ListOrder:
    """The order in which events were raised, as far as documents have shown it."""

    def __init__(self) -> None:
        self._rank: dict[str, int] = {}
        self._lists: set[tuple[str, ...]] = set()
        self._lists_with: dict[str, list[tuple[str, ...]]] = {}

    def clash(self, ids: tuple[str, ...]) -> tuple[str, str] | None:
        if ids in self._lists:
            return None
        self._lists.add(ids)
        ranks = [self._rank.get(id, len(self._rank)) for id in ids]
        pair = None
        if any(first > second for first, second in pairwise(ranks)):
            # Either a clash, or events that were never seen together were ranked by chance.
            others = {earlier for id in ids for earlier in self._lists_with.get(id, ())}
            pair = min(
                filter(None, (_swapped_pair(ids, earlier) for earlier in others)), default=None
            )
        for id in ids:
            self._rank.setdefault(id, len(self._rank))
            self._lists_with.setdefault(id, []).append(ids)
        return pair


def _swapped_pair(ids: tuple[str, ...], earlier: tuple[str, ...]) -> tuple[str, str] | None:
    position = {id: number for number, id in enumerate(earlier)}
    common = [id for id in ids if id in position]
    for first, second in pairwise(common):
        if position[first] > position[second]:
            return first, second
    return None


class _StartedPairs:
    """Pairs of events that were Started in one document.

    Since no event goes backwards, a document that shows one Scheduled while the other was Started
    proves in which order they started, whatever the clocks say. Ids are unique, so documents of
    all groups and unknown callers are kept together.
    """

    def __init__(self) -> None:
        self._time_free: set[tuple[str, str]] = set()
        self._both: dict[tuple[str, str], tuple[Event, Event, Sighting]] = {}

    def add(self, sighting: Sighting) -> None:
        assert sighting.document.events is not None
        started = [event for event in sighting.document.events if event.started]
        if not started:
            return
        for event in sighting.document.events:
            if not event.started:
                self._time_free.update((event.id, early.id) for early in started)
        for first, second in combinations(sorted(started, key=lambda event: event.id), 2):
            self._both.setdefault((first.id, second.id), (first, second, sighting))

    def waited(self, late: Event, early: Event) -> bool:
        """Return whether `late` was seen Scheduled while `early` was Started."""
        return (late.id, early.id) in self._time_free

    def started_together(self) -> Iterable[tuple[Event, Event, Sighting]]:
        """Return each pair once, with the first document that shows both Started."""
        return self._both.values()


def _list(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(names) + "]"
