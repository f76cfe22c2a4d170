"""What a client can do wrong, by name: what is expected, and whether missing it is wrong or only
worth a word. `forewarn verdict --rules` prints this table; docs/test/verdict.md explains it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

WRONG = "wrong"
NOTE = "note"

CHANCE = 5.0  # seconds, of both clocks, in which whoever asks at all should have asked once
SELDOM = 15.0  # seconds between two polls that are too many for a Preempt and its 30
LEAST_INTERVALS = 3  # that have to be known before anything is said about how often one asks
GIVEN_UP = 120.0  # seconds of silence that no waiting between two attempts explains
HAMMERING = 10.0  # polls a second that nobody needs
HAMMERED = 10.0  # seconds for which they have to go on
THROTTLED = 20  # refusals in a row for asking too often, ...
THROTTLED_WITHIN = 10.0  # ... and in so few seconds
REPEATED = 5  # approvals of one event by one machine
SHORT_FREEZE = 10  # seconds of a pause that is over before anything could be moved away
RESTARTING = 300.0  # seconds that a machine may be silent after something was done to it


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
    "never-seen": Rule("A client that polls does so at least once while an event is announced."),
    "nobody-asked": Rule("At least one machine polls; otherwise no client can be assessed."),
    "seen-late": Rule("An event is seen while it is Scheduled, not when it has started."),
    "polls-too-seldom": Rule("Polls are no further apart than half of the shortest notice."),
    "gave-up": Rule("After an unusable answer, a client asks again later; it does not stop."),
    "ignored-throttling": Rule("After 429, a client polls less often for a while."),
    "polls-seldom": Rule("Once a second is the recommended rate; a Preempt gives 30 s.", NOTE),
    "stopped-polling": Rule("A client that has begun to poll continues to poll.", NOTE),
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
    "preview-version": Rule(
        "2017-03-01 was a preview: other times, other names, fewer types.", NOTE
    ),
}
