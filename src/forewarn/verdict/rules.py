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
    "wrong-path": Rule("Events are asked for at /metadata/scheduledevents."),
    "wrong-verb": Rule("Events are read with GET and approved with POST."),
    "wrong-query": Rule("A parameter is given once."),
    "wrong-version": Rule("Every request names an api-version that there is."),
    "blind-version": Rule("The api-version shows the types of event that come to the machine."),
    "malformed-approval": Rule('An approval is JSON: {"StartRequests":[{"EventId":"…"}]}.'),
    "unknown-approval": Rule("Only events that the group has been shown are approved."),
    "ignored-withdrawal": Rule("An event that has been withdrawn is not acted upon any more."),
    "never-seen": Rule("Whoever asks, asks at least once while an event is announced."),
    "nobody-asked": Rule("Somebody asks; of a client that never does there is nothing to tell."),
    "seen-late": Rule("An event is seen while it is Scheduled, not when it has started."),
    "polls-too-seldom": Rule("Polls are no further apart than half of the shortest notice."),
    "gave-up": Rule("An answer that cannot be used is a reason to ask again later, not to stop."),
    "ignored-throttling": Rule("Whoever is told 429 asks less often for a while."),
    "polls-seldom": Rule("Once a second is the recommended rate; a Preempt gives 30 s.", NOTE),
    "stopped-polling": Rule("Whoever has asked goes on asking.", NOTE),
    "hammering": Rule("Once a second is enough; a long-poll is quicker still.", NOTE),
    "approved-freeze": Rule(
        "A pause of a few seconds need not be approved: it can be sat out.", NOTE
    ),
    "late-approval": Rule(
        "An event is approved before it starts; afterwards it means nothing.", NOTE
    ),
    "repeated-approval": Rule("An event is approved once; it is remembered.", NOTE),
    "preview-version": Rule(
        "2017-03-01 was a preview: other times, other names, fewer types.", NOTE
    ),
}
