"""Events of several groups that go as one: which they are, and what was proven of each.

A host is worked on once, for all its machines. Its events wait for one another, so that one of
them is late only if the documents of every group together show that nothing holds any.
"""

import math

from .records import Trace

_Key = tuple[str, str]  # free in what sense, and which event


class Joints:
    def __init__(self, trace: Trace) -> None:
        self._members: dict[str, frozenset[str]] = {}
        told: dict[str, set[str]] = {}
        for joint in trace.joints:
            told.setdefault(joint.id, set()).update(joint.events)
        self.all = tuple(tuple(sorted(events)) for events in told.values() if len(events) > 1)
        for ids in self.all:
            self._members.update(dict.fromkeys(ids, frozenset(ids)))

    def members(self, id: str) -> frozenset[str]:
        """The event and all that start with it: most go alone."""
        return self._members.get(id) or frozenset((id,))

    def others(self, id: str) -> frozenset[str]:
        return self._members.get(id, frozenset()) - {id}


class Company:
    """For how long each of them was certainly free to go, as far as its own group shows it."""

    def __init__(self, joints: Joints) -> None:
        self._joints = joints
        self._free: dict[_Key, tuple[float, float]] = {}
        self._gone: dict[str, float] = {}

    def found_free(self, key: _Key, since: float, until: float) -> None:
        if since < until and self._joints.others(key[1]):
            self._free[key] = since, until

    def found_gone(self, id: str, t: float) -> None:
        """It is over: the others wait for it no longer."""
        self._gone.setdefault(id, t)

    def goes_alone(self, id: str) -> bool:
        return not self._joints.others(id)

    def free(self, key: _Key) -> tuple[float, float] | None:
        """When all the others were free, at the same time; None if one may have been held."""
        what, id = key
        since, until = -math.inf, math.inf
        for other in self._joints.others(id):
            gone = self._gone.get(other)
            if gone is not None:
                since = max(since, gone)
                continue
            found = self._free.get((what, other))
            if found is None:
                return None
            since, until = max(since, found[0]), min(until, found[1])
        return since, until
