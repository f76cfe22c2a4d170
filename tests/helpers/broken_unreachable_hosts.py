"""Services with nodes on hosts that break what is promised of machines that are disconnected. By
the rule that has to find them, for the table of all rules."""

from collections.abc import Callable
from typing import Any

from helpers.judge_traces import DUE, T0, A, B, C, Recording, event, started

Build = Callable[[], Recording]

# Of the machine that is disconnected, and of another one of its group.
OWN = event()
OTHER = event(B, resources=["web_1"])
FAR = "web_1"  # the machine of the group that is never disconnected


def alone(host: str | None = None, **changed: Any) -> Recording:
    """Both machines have been shown an event of each; then web_0 is disconnected."""
    recording = Recording(**changed)
    recording.see(T0, 5, OWN, OTHER).see(T0 + 0.1, 5, OWN, OTHER, machine=FAR)
    return recording.disconnected(T0 + 10, host=host)


def gone_on(recording: Recording) -> Recording:
    """Elsewhere the other's event was approved, carried out, and is over."""
    return (
        recording.approve(T0 + 20, B, machine=FAR)
        .see(T0 + 21, 6, OWN, started(OTHER), machine=FAR)
        .impact(T0 + 25, B, [FAR])
        .see(T0 + 40, 7, OWN, machine=FAR)
    )


def lagging(recording: Recording, *times: float) -> Recording:
    """The machine that is disconnected is shown what its node was last told."""
    for t in times:
        recording.see(t, 5, OWN, OTHER)
    return recording


def lawful() -> Recording:
    """A machine is disconnected, others go on without it, and it has joined again."""
    recording = lagging(gone_on(alone()), T0 + 22, T0 + 30, T0 + 60)
    return recording.joined(T0 + 100).see(T0 + 101, 7, OWN)


def rebooted(t: float) -> Recording:
    """The own event was started at `t`, long after the machine was disconnected, and carried
    out."""
    return gone_on(alone()).moved(t, "start").impact(t + 5)


DISCONNECTED: dict[str, list[Build]] = {
    "disconnected-backwards": [
        # Before and while disconnected, while disconnected, and when it has joined again.
        lambda: alone().see(T0 + 20, 4, OWN),
        lambda: alone().see(T0 + 20, 6, OWN, OTHER).see(T0 + 30, 5, OWN, OTHER),
        lambda: (
            alone()
            .see(T0 + 20, 6, OWN, OTHER, event(C, not_before=DUE + 20))
            .joined(T0 + 40)
            .see(T0 + 50, 5, OWN, OTHER)
        ),
        # Over several spells.
        lambda: (
            alone()
            .see(T0 + 20, 6, OWN)
            .joined(T0 + 40)
            .see(T0 + 41, 7, OWN)
            .disconnected(T0 + 60)
            .see(T0 + 70, 6, OWN)
        ),
        # In its events, whatever the number.
        lambda: (
            alone()
            .approve(T0 + 5, B, machine=FAR)
            .see(T0 + 20, 6, OWN, started(OTHER))
            .see(T0 + 30, 7, OWN, OTHER)
        ),
        lambda: alone().see(T0 + 20, 6, OTHER).see(T0 + 30, 7, OWN, OTHER),
        lambda: alone().see(T0 + 20, 6, OTHER).joined(T0 + 25).see(T0 + 30, 7, OWN, OTHER),
        # A virtual clock stands still.
        lambda: (
            Recording(complete=True)
            .disconnected(T0)
            .see(T0, 5, OWN, asked=T0)
            .see(T0, 4, OWN, asked=T0)
        ),
    ],
    "disconnected-approved": [
        lambda: lagging(alone(), T0 + 20).approve(T0 + 30, A),
        lambda: lagging(alone(), T0 + 20).approve(T0 + 30, A, B),
        # Answered 500 before, which decides nothing.
        lambda: alone().approve(T0 + 20, A, status=500).approve(T0 + 30, A),
        # Approved elsewhere, of which the node cannot know.
        lambda: alone().note({"kind": "approval", "t": T0 + 20, "event": A}).approve(T0 + 30, A),
        lambda: lawful().disconnected(T0 + 200).approve(T0 + 210, A).joined(T0 + 220),
    ],
    "disconnected-impact": [
        # Started while it was disconnected, as the service has recorded, or as others were shown.
        lambda: rebooted(DUE + 10),
        lambda: alone().see(DUE, 5, OWN, OTHER, machine=FAR).impact(DUE + 5),
        lambda: (
            alone()
            .see(DUE - 1, 5, OWN, OTHER, machine=FAR)
            .see(DUE + 1, 6, started(OWN), OTHER, machine=FAR)
        ),
        # Not to be seen by others, but it was due then and not before.
        lambda: alone().impact(DUE + 5),
        # An event that was raised while the machine was disconnected.
        lambda: (
            alone()
            .see(T0 + 60, 6, OWN, OTHER, event(C, not_before=T0 + 960), machine=FAR)
            .approve(T0 + 70, C, machine=FAR)
            .moved(T0 + 80, "start", C)
        ),
        # Carried out, and after that the machine was still shown it as Scheduled.
        lambda: lagging(alone().approve(T0 + 5, A).impact(T0 + 20), T0 + 40),
        # The node of another host was given up.
        lambda: rebooted(DUE + 10).note({"kind": "without-node", "t": T0 + 50, "host": "h2"}),
        # A delete waits as well.
        lambda: (
            Recording()
            .see(T0, 5, event(type="Terminate"))
            .disconnected(T0 + 10)
            .moved(DUE + 1, "start", type="Terminate")
        ),
        # Without a word to anybody.
        lambda: (
            alone()
            .unannounced(T0 + 100, C, ["web_0"])
            .impact(T0 + 101, C, type="Reboot")
            .over(T0 + 120, C)
        ),
    ],
    # After it has joined again, until its guests had time to react.
    "grace-start": [
        lambda: alone(grace=60).joined(DUE + 10).moved(DUE + 20, "start"),
    ],
    # What was shown elsewhere before it joined is not taken back.
    "incarnation-down": [
        lambda: gone_on(alone()).joined(T0 + 100).see(T0 + 101, 4, OWN),
    ],
    "backwards": [
        lambda: (
            alone()
            .approve(T0 + 20, B, machine=FAR)
            .see(T0 + 21, 6, OWN, started(OTHER), machine=FAR)
            .joined(T0 + 100)
            .see(T0 + 101, 7, OWN, OTHER)
        ),
    ],
    "came-back": [
        lambda: gone_on(alone()).joined(T0 + 100).see(T0 + 101, 8, OWN, started(OTHER)),
    ],
    # These do not depend on time.
    "changed-facts": [
        lambda: alone().see(T0 + 20, 6, {**OWN, "Description": "Another."}, OTHER),
    ],
    "incarnation-same": [
        lambda: gone_on(alone()).see(T0 + 50, 7, OWN, event(C, not_before=DUE + 50)),
    ],
}
