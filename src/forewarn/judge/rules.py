"""Every promise the judge can find broken, by name.

The names are stable: scripts and tests rely on them. Only what was promised is listed here;
what counts as proof is decided where a rule is applied.
"""

from collections.abc import Mapping
from types import MappingProxyType

_ANSWERS = {
    "wrong-status": "The status is the one that the request must get.",
    "error-body": "An error carries the body that belongs to it.",
    "server-error": "No 5xx, except 500 if a change cannot be made durable, and 503 if overloaded.",
    "unknown-caller": "A caller that is not a machine of the fleet gets 404, never a document.",
    "content-type": "Content-Type is application/json; charset=utf-8, for errors too.",
    "content-length": "Content-Length is present on success and equals the length of the body.",
    "date-header": "Every answer carries a Date in RFC 1123 form.",
    "server-header": "Every answer names its Server as IMDS/….",
    "request-id": "Every answer carries an x-ms-request-id of its own.",
    "allow-header": "A 405 says in Allow that GET and POST are served.",
    "approval-body": "An accepted approval is answered with an empty body.",
    "post-precondition": "A POST is never answered 304 or 412.",
    "etag-form": "A document carries a quoted ETag.",
    "etag-mismatch": "The same body has the same ETag, another body another one.",
    "wrong-304": "304 only to a request whose If-None-Match names the current tag, without a body.",
    "missed-304": "A request whose If-None-Match names the current tag is answered 304.",
}

_DOCUMENTS = {
    "not-a-document": "A 200 to a GET is a JSON document with DocumentIncarnation and Events.",
    "not-compact": "A document is compact JSON without a trailing newline.",
    "keys": "An event has exactly the keys of its api-version, no more and no fewer.",
    "key-order": "Keys are in the documented order.",
    "incarnation-form": "DocumentIncarnation is an integer, 1 or more.",
    "event-id-form": "EventId is an upper-case GUID.",
    "duplicate-event": "An event is in a document only once.",
    "event-status": "EventStatus is Scheduled or Started.",
    "event-type": "EventType is Freeze, Reboot, Redeploy, Preempt or Terminate.",
    "hidden-type": "A version does not list event types that are newer than itself.",
    "resource-type": "ResourceType is VirtualMachine.",
    "resources-form": "Resources is a list of strings.",
    "resource-name": "Names carry a leading underscore in 2017-03-01 (cloud services never).",
    "not-before-form": "NotBefore is a whole second in the form of its api-version.",
    "not-before-status": 'NotBefore is a time while Scheduled and "" once Started.',
    "description-form": "Description is a string.",
    "event-source": "EventSource is Platform or User, and User only for Reboot and Redeploy.",
    "duration-form": "DurationInSeconds is an integer, -1 or more, and -1 for a user's event.",
}

_COURSE = {
    "changed-id": "An event keeps its EventId from Scheduled until it is gone.",
    "changed-facts": "What an event says of itself never changes, in any document or version.",
    "backwards": "A Started event is never Scheduled again.",
    "came-back": "An event that is gone does not come back.",
    "events-order": "Events are in the order in which they were raised, new ones at the end.",
    "incarnation-same": "One incarnation identifies one array of events.",
    "incarnation-down": "The incarnation goes down only when a group was disabled in between.",
    "incarnation-idle": "The incarnation changes only when the events do (where changes are"
    " known).",
    "incarnation-start": "A newly enabled group starts at incarnation 1 (where changes are known),"
    " and one that was removed and created again above all that were shown.",
    "short-notice": "NotBefore is at least the type's minimum notice after the announcement.",
    "unscheduled-start": "A Freeze or Preempt is Scheduled before it is Started.",
    "early-start": "Without an approval no event starts before its NotBefore.",
    "grace-start": "After an outage or a clock step, and after its machines were disconnected, no"
    " event starts by its NotBefore for a while.",
    "window": "An event that has a window starts only while it is open.",
    "started-while-halted": "Nothing that a halt covers starts until the halt is released.",
    "started-outside-window": "Maintenance starts only when the windows and blackouts of its"
    " machines allow it, unless an operator lets it ignore them.",
    "started-uninformed": "Host maintenance does not start while a machine on the host is not named"
    " by it.",
    "joint-start": "The events of one host maintenance start together, in all its groups.",
    "joint-not-before": "The events of one host maintenance have one NotBefore.",
    "joint-approval": "Host maintenance starts early only if every enabled group has approved.",
    "coupling": "An approved Terminate waits for those that are due no later, while they wait.",
    "late-start": "An event whose NotBefore has passed starts when nothing holds it.",
    "vanished": "An approved event is Started before it is gone, unless it was withdrawn.",
    "lost-approval": "An acknowledged approval starts the event when nothing holds it.",
    "approval-refused": "An approval of an event that the group was shown is accepted.",
    "approval-accepted": "An approval of an event that was never listed for the group is refused.",
    "outlived": "An event that names only deleted machines is gone with them.",
    "unannounced-shown": "An event that is carried out unannounced is never listed in a document.",
    "leak-event": "An event is shown to the machines of one group only.",
    "leak-resource": "A document names no machine of another group.",
    "domain-split": "The machines of one event lie in one update domain and one fault domain.",
    "domain-overlap": "The platform disturbs one update domain and one fault domain of a group at a"
    " time.",
    "machine-overlap": "A machine has one Started event; others wait for it.",
    "disconnected-backwards": "Documents of one machine do not go back while it is disconnected,"
    " nor when it has joined again.",
    "disconnected-approved": "An approval is not accepted by a node that control cannot reach.",
    "disconnected-impact": "Nothing that was not started before is started for, or done to, a"
    " machine that is disconnected, unless it fails.",
    "impact-early": "Without an approval nothing is done to a machine before NotBefore.",
    "impact-while-scheduled": "Nothing is done to a machine while its event is still Scheduled.",
    "impact-after-gone": "Nothing is done to a machine for an event that is gone.",
    "impact-twice": "An event is carried out on a machine once.",
    "impact-stray": "Only machines that the event lists are touched.",
    "impact-type": "What is done is what the event announced.",
    "over-before-back": "An event of a group that waits for its machines is not over before those"
    " that had polled have polled again, or the time for that has passed.",
}

RULES: Mapping[str, str] = MappingProxyType({**_ANSWERS, **_DOCUMENTS, **_COURSE})
