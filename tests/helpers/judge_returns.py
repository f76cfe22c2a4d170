"""Recordings of a group that waits until its machines are back."""

from typing import Any

from helpers.judge_traces import FLEET, T0, A, Recording

CARRIED_OUT = T0 + 700  # when the event is carried out
WITHIN = {"Reboot": 600, "Redeploy": 600, "Freeze": 60}


class Returning(Recording):
    """A recording of an event of web_0 that was carried out."""

    def __init__(self, type: str, waits: bool) -> None:
        super().__init__(fleet=False)
        self._type = type
        groups = {**FLEET["groups"], "web": {"kind": "scale-set", "back_within": WITHIN}}
        self.fleet(T0 - 10, **({"groups": groups} if waits else {}))

    def step_of_event(self, t: float, move: str, **changed: Any) -> None:
        self.moved(t, move, **{"type": self._type, **changed})

    def see_other(self, t: float) -> "Returning":
        self.see(t, 5, machine="web_2")
        return self

    def over_at(self, t: float, **changed: Any) -> Recording:
        self.step_of_event(t, "finish", **{"carried_out": True, **changed})
        return self


def carried_out(
    type: str = "Reboot",
    *,
    every: float | None = 1,
    last: float = 5,
    impacts: bool = True,
    waits: bool = True,
) -> Returning:
    """`every` are the seconds between the polls of web_0 before the event starts (None: there is
    one poll), and `last` those from the last one to the start."""
    recording = Returning(type, waits)
    for n in (3, 2, 1, 0) if every is not None else (0,):
        recording.see(CARRIED_OUT - 10 - last - n * (every or 0), 5)
    recording.step_of_event(CARRIED_OUT - 20, "raise")
    recording.step_of_event(CARRIED_OUT - 10, "start")
    if impacts:
        recording.impact(CARRIED_OUT, A, type=type)
    return recording
