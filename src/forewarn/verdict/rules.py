"""The rules for clients: what is expected, and whether breaking a rule is wrong or only a note.

`forewarn verdict --rules` prints this table; "The verdict" in the documentation explains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

import msgspec

from forewarn.support.suggest import instead_of, shortened

WRONG = "wrong"
NOTE = "note"

MIN_CHANCE = 5.0  # seconds, of both clocks, in which every polling client should have polled once
SILENCE = 2.5  # seconds, and times its longest gap, without a poll of a client that had nothing
SILENT_GAPS = 3  # to do, after which it has stopped, however short the notice was
PREPARING = 15.0  # the same in seconds after news, for which it may have been preparing
MAX_INTERVAL = (
    15.0  # seconds between two polls; more are too many for a Preempt with its 30 s of notice
)
MIN_INTERVALS = 3  # that have to be known before the polling rate is assessed
GIVEN_UP_AFTER = 120.0  # seconds without a request, which no back-off explains
HAMMERING_RATE = 10.0  # polls a second
HAMMERING_SECONDS = 10.0  # seconds for which that rate has to last
MAX_THROTTLED = 20  # answers 429 in a row ...
THROTTLED_SECONDS = 10.0  # ... within this many seconds
STALLED_SECONDS = 60.0  # seconds, of both clocks, for which no request should wait for an answer
MAX_APPROVALS = 5  # of one event by one machine
SHORT_FREEZE = 10  # seconds; a shorter pause is over before anything could be moved away
RESTART_SECONDS = (
    300.0  # seconds in which a machine need not poll after an event was carried out on it
)
MIN_RESTART_SECONDS = 10.0  # the same at any speed, since no program starts faster


RuleName: TypeAlias = Literal[
    "missing-header",
    "forwarded",
    "wrong-path",
    "wrong-verb",
    "wrong-query",
    "wrong-version",
    "blind-version",
    "malformed-approval",
    "unknown-approval",
    "ignored-withdrawal",
    "approved-too-early",
    "never-seen",
    "clock-passed",
    "nobody-asked",
    "seen-late",
    "polls-too-seldom",
    "stopped-polling",
    "gave-up",
    "ignored-throttling",
    "polls-seldom",
    "hammering",
    "approved-freeze",
    "late-approval",
    "repeated-approval",
    "no-reaction",
    "approved-for-others",
    "slow-poll",
    "no-timeout",
    "preview-version",
]
"""The name of a rule for clients. A test compares it with `RULES`."""


class Rule(msgspec.Struct, frozen=True):
    expects: str
    severity: str = WRONG


RULES: Mapping[str, Rule] = {
    "missing-header": Rule("Every request carries the header Metadata: true."),
    "forwarded": Rule("No request carries X-Forwarded-For: it must not come through a proxy."),
    "wrong-path": Rule("Events are requested at /metadata/scheduledevents."),
    "wrong-verb": Rule("Events are read with GET and approved with POST."),
    "wrong-query": Rule("A parameter is given once."),
    "wrong-version": Rule("Every request names an existing api-version."),
    "blind-version": Rule("The api-version supports every type of event that the machine gets."),
    "malformed-approval": Rule('An approval is JSON: {"StartRequests":[{"EventId":"…"}]}.'),
    "unknown-approval": Rule("Only events that the group has been shown are approved."),
    "ignored-withdrawal": Rule("A client does not act on an event that has been withdrawn."),
    "approved-too-early": Rule(
        "An event is approved when the machine is done with its work, not before."
    ),
    "never-seen": Rule(
        "A client that polls reads the document at least once while an event is announced."
    ),
    "clock-passed": Rule(
        "The clock is not moved past an announced event before a client that polls has polled."
    ),
    "nobody-asked": Rule("At least one machine polls; otherwise no client can be assessed."),
    "seen-late": Rule("An event is seen while it is Scheduled, not when it has started."),
    "polls-too-seldom": Rule("Polls are no further apart than half of the shortest notice."),
    "stopped-polling": Rule("A client that has begun to poll continues to poll."),
    "gave-up": Rule("After an unusable answer, a client asks again later; it does not stop."),
    "ignored-throttling": Rule("After 429, a client polls less often for a while."),
    "polls-seldom": Rule("Once a second is the recommended rate; a Preempt gives 30 s.", NOTE),
    "hammering": Rule("Once a second is enough; a long-poll is quicker still.", NOTE),
    "approved-freeze": Rule(
        "A pause of a few seconds need not be approved; a client can ignore it.", NOTE
    ),
    "late-approval": Rule(
        "An event is approved before it starts; a later approval has no effect.", NOTE
    ),
    "repeated-approval": Rule(
        "An event is approved once; the service remembers the approval.", NOTE
    ),
    "no-reaction": Rule(
        "Before its own Preempt, Reboot, Redeploy or Terminate starts, a machine approves it or"
        " reports that it is ready.",
        NOTE,
    ),
    "approved-for-others": Rule(
        "A machine approves its own events; those of other machines only if that is agreed.", NOTE
    ),
    "slow-poll": Rule("A client polls again while the clock waits for it.", NOTE),
    "no-timeout": Rule("A request has a time-out, so that it ends even without an answer.", NOTE),
    "preview-version": Rule(
        "2017-03-01 was a preview: other times, other names, fewer types.", NOTE
    ),
}


def check_rules(*names: str) -> tuple[RuleName, ...]:
    """Return the names of rules, or raise ValueError if one of them is none."""
    for name in names:
        if name not in RULES:
            raise ValueError(f"unknown rule '{shortened(name)}'; {instead_of(name, RULES)}")
    return cast(tuple[RuleName, ...], names)
