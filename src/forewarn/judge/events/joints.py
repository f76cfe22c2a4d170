"""Joint events: events of several groups that start together, since they are one host maintenance.

They wait for one another, so one of them is late only if the documents of all groups together show
that nothing holds any of them.
"""

import math

from forewarn.judge.reading.records import Trace

_Key = tuple[str, str]  # free because it is `due` or `approved`, and the id of the event


class Joints:
    def __init__(self, trace: Trace) -> None:
        self._members: dict[str, frozenset[str]] = {}
        announced: dict[str, list[set[str]]] = {}
        for joint in trace.joints:
            # Maintenance that was withdrawn and announced again has the same id and other events.
            earlier = announced.setdefault(joint.id, [])
            same = next((events for events in earlier if not events.isdisjoint(joint.events)), None)
            if same is None:
                earlier.append(set(joint.events))
            else:
                same.update(joint.events)
        self.all = tuple(
            tuple(sorted(events))
            for earlier in announced.values()
            for events in earlier
            if len(events) > 1
        )
        for ids in self.all:
            self._members.update(dict.fromkeys(ids, frozenset(ids)))

    def members(self, id: str) -> frozenset[str]:
        """Return the event and all events that start with it."""
        return self._members.get(id) or frozenset((id,))

    def others(self, id: str) -> frozenset[str]:
        return self._members.get(id, frozenset()) - {id}


class JointProgress:
    """For how long each joint event was certainly free to start, as far as its own group shows."""

    def __init__(self, joints: Joints) -> None:
        self._joints = joints
        self._free: dict[_Key, tuple[float, float]] = {}
        self._gone: dict[str, float] = {}

    def set_free(self, key: _Key, since: float, until: float) -> None:
        if since < until and self._joints.others(key[1]):
            self._free[key] = since, until

    def set_gone(self, id: str, t: float) -> None:
        """Record that an event has ended: the others do not wait for it any more."""
        self._gone.setdefault(id, t)

    def is_single(self, id: str) -> bool:
        return not self._joints.others(id)

    def all_free(self, key: _Key) -> tuple[float, float] | None:
        """Return the time in which all the others were free; None if one may have been held."""
        sense, id = key
        since, until = -math.inf, math.inf
        for other in self._joints.others(id):
            ended = self._gone.get(other)
            if ended is not None:
                since = max(since, ended)
                continue
            span = self._free.get((sense, other))
            if span is None:
                return None
            since, until = max(since, span[0]), min(until, span[1])
        return since, until
