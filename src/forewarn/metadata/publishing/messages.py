"""The messages between control and the nodes on hosts (`support.message_stream` has their frames).

The first message in each direction contains the versions; it is the only one that another version
has to understand. When which message is sent is defined in `host_nodes` (control) and
`node_upstream` (the node).
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from forewarn.core import Durations, GroupView, Machine, Time
from forewarn.core.fleet import MAX_NAME, Place
from forewarn.core.time import Instant
from forewarn.metadata.upstream import GroupNews, Prepared
from forewarn.service.access.machine_tokens import MachineToken
from forewarn.service.indexes.unknown_callers import (
    MAX_ADDRESS,
    MAX_ADDRESSES,
    MAX_REQUESTS,
    UnknownCaller,
)
from forewarn.support.limits import MAX_READY_NOTE
from forewarn.support.message_stream import UnknownMessage
from forewarn.support.text import GUID

NODE_PROTOCOLS = (1, 2)  # a node may have another version: the last one, and the one before
TWO_ROUNDS = 2  # the first protocol whose nodes show the old documents until they are to hide them
MAX_GREETING = 64 * 1024  # bytes of a node's first message

# What a node may send, which may have been taken over with its host. Everything else is checked
# when it is decoded, and ends the connection.
MAX_VERSION = 64  # characters of a version, of forewarn or of the API
MAX_COMMIT = 2**53  # far more commits than a state can have
MAX_IDS = 8_192  # events that one approval names; a body of `max_body` has fewer
MAX_RESOURCE = 1_024  # characters of a resource; the endpoint accepts fewer
MAX_HIDDEN = 1_024  # publications of one message
MOST_ARRIVING = 256  # machines that a hello names; others are asked for again

Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
Version: TypeAlias = Annotated[str, Meta(max_length=MAX_VERSION)]
EventId: TypeAlias = Annotated[str, Meta(pattern=rf"^{GUID.pattern}\Z")]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]

# The first message of a node, and that of control.


class NodeHello(msgspec.Struct, frozen=True, kw_only=True, tag="node"):
    """The first message of a node. Later versions only add fields, with defaults."""

    protocols: Annotated[tuple[int, ...], Meta(max_length=16)]  # that it speaks
    version: Version  # of forewarn
    host: Name
    instance: Version  # of the node's process
    serving: bool  # does it already answer guests, with what it was told before?
    term: int = 0  # the highest of a control node that it has followed
    # Machines that are about to move to its host, with their groups:
    arriving: Annotated[dict[Name, Name], Meta(max_length=MOST_ARRIVING)] = {}
    commit: Annotated[int, Meta(ge=0, le=MAX_COMMIT)] = 0  # the last one that it was told of
    commit_at: Instant = 0  # when that was made; 0: not known


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    protocol: int
    version: str
    rules: Durations
    term: int = 0  # of this control node; 0: there is only one
    commit: int = 0  # the last one of its state; 0: not known
    commit_at: Time = 0  # when that was made; 0: not known
    tokens: bool = False  # do machines have managed identities? Whoever does not say so answers not


class Unwelcome(msgspec.Struct, frozen=True, tag="unwelcome"):
    reason: str


# Control to a node.


class SnapshotPart(msgspec.Struct, frozen=True, tag="slice"):
    """Some of the groups."""

    groups: tuple[GroupNews, ...]
    pending: dict[str, int] = {}  # by group: the publication with which it may be shown like that


class SnapshotEnd(msgspec.Struct, frozen=True, tag="whole"):
    """End of the snapshot: groups that were not sent do not exist."""

    number: int  # of the last publication that it contains


class Changed(msgspec.Struct, frozen=True):
    """A group that has changed; fields that are None have not."""

    view: GroupView
    machines: tuple[Machine, ...] | None = None
    place: Place | None = None
    removed: bool = False  # it is not shown any more


class Publication(msgspec.Struct, frozen=True, array_like=True):
    """Groups that are shown together."""

    number: int
    groups: tuple[Changed, ...]


class News(msgspec.Struct, frozen=True, tag="news"):
    """Groups after durable commits, which may not be shown yet. A node that has not joined, or with
    protocol 1, does not show the old documents any more either."""

    publications: tuple[Publication, ...]
    more: bool = False  # is this continued in another message?


class Hide(msgspec.Struct, frozen=True, tag="hide"):
    """All nodes have these publications. From now on neither the old nor the new may be shown."""

    numbers: tuple[int, ...]


class Unhide(msgspec.Struct, frozen=True, tag="unhide"):
    """The old documents may be shown again: a node has not confirmed `Hide`, and is waited for."""

    numbers: tuple[int, ...]


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """Everything may be shown that was sent, except for some publications."""

    pending: tuple[int, ...]
    at: Time
    commit: int = 0  # the last one
    commit_at: Time = 0  # when that was made; 0: not known


class Shown(msgspec.Struct, frozen=True, tag="shown"):
    """These publications may be shown: nobody shows the old documents any more."""

    numbers: tuple[int, ...]
    at: Time
    commit: int = 0  # the last one
    commit_at: Time = 0  # when that was made; 0: not known


class ReadLease(msgspec.Struct, frozen=True, tag="promise"):
    """Until then nothing newer is shown elsewhere without this node."""

    until: float  # in seconds of control's clock, as in `Pong`
    at: Time  # the service's time: nodes do not read the wall clock
    commit: int = 0  # the last one, of which guests may notice nothing
    commit_at: Time = 0  # when that was made; 0: not known


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """The answer to a Ping."""

    sent: float  # as in the Ping
    at: float  # seconds of control's clock, which also runs while its computer is suspended
    time: Time = 0  # the service's, as in `ReadLease`; 0: from an earlier version


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """The answer to a call. Its effects were sent before."""

    id: int
    yes: bool = True
    prepared: Prepared | None = None
    not_before: Time | None = None  # of the event that was postponed
    refused: str = ""  # why it was not postponed
    failed: str = ""  # why it could not be carried out; then nothing took effect
    token: MachineToken | None = None  # of the machine


class Renewed(msgspec.Struct, frozen=True, tag="renewed"):
    """A new certificate for the key of the node, and what it has to trust from now on."""

    certificate: str  # PEM
    trusted: str  # certificates of authorities (PEM)


class AskLastPoll(msgspec.Struct, frozen=True, tag="ask-last-poll"):
    """Asks when a machine polled last: it seems to be on another host. An older node does not
    answer."""

    machine: str


class Goodbye(msgspec.Struct, frozen=True, tag="goodbye"):
    """Control stops in an orderly way."""


# A node to control.


class Held(msgspec.Struct, frozen=True, tag="held"):
    """Confirms that this publication, and those that were sent before it, are in the journal."""

    number: Number
    whole: bool = False  # in answer to `SnapshotEnd`: nothing is shown as it was before


class Hidden(msgspec.Struct, frozen=True, tag="hidden"):
    """Confirms `Hide`: nothing is shown any more as it was before these publications."""

    numbers: Annotated[tuple[Number, ...], Meta(max_length=MAX_HIDDEN)]


class Enable(msgspec.Struct, frozen=True, tag="enable"):
    id: Number
    group: Name


class Approve(msgspec.Struct, frozen=True, tag="approve"):
    id: Number
    machine: Name
    group: Name
    ids: Annotated[tuple[str, ...], Meta(max_length=MAX_IDS)]  # as the guest has sent them


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    id: Number
    machine: Name
    group: Name
    event: str
    ready: bool
    note: Annotated[str, Meta(max_length=MAX_READY_NOTE)]


class AskPrepared(msgspec.Struct, frozen=True, tag="prepared"):
    id: Number
    group: Name
    event: str


class Postpone(msgspec.Struct, frozen=True, tag="postpone"):
    id: Number
    machine: Name
    group: Name
    event: str
    until: Instant


class AskToken(msgspec.Struct, frozen=True, tag="ask-token"):
    """Asks for a token of a machine's own. Sent only to control that issues them."""

    id: Number
    machine: Name
    group: Name
    resource: Annotated[str, Meta(max_length=MAX_RESOURCE)]


Call: TypeAlias = Enable | Approve | Prepare | AskPrepared | Postpone | AskToken


class WhoIs(msgspec.Struct, frozen=True, tag="who-is"):
    """Asks control for the machine with an address that it does not know: it may be about
    to move to this host. If there is one, it is told before the answer."""

    id: Number
    address: Annotated[str, Meta(max_length=MAX_ADDRESS)]


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    sent: float  # seconds of the node's own clock


class Kept(msgspec.Struct, frozen=True, tag="kept"):
    """A node that has joined has had a read lease all the time since it joined before: it was
    without a connection, but never disconnected."""


class Polled(msgspec.Struct, frozen=True, array_like=True):
    """A machine's polls since it was last reported, all of one version and incarnation. `first` is
    when it was first answered with that document, also if that was reported to another control."""

    machine: Name
    group: Name
    version: Version
    incarnation: Number
    events: tuple[EventId, ...]
    first: Instant
    last: Instant
    count: Annotated[int, Meta(ge=0, le=MAX_REQUESTS)]


class Report(msgspec.Struct, frozen=True, tag="report"):
    """What was answered since the last report."""

    polled: tuple[Polled, ...] = ()
    alive: tuple[Name, ...] = ()  # groups with a sign of life that was answered with nothing
    unknown: Annotated[tuple[UnknownCaller, ...], Meta(max_length=MAX_ADDRESSES)] = ()


class Renew(msgspec.Struct, frozen=True, tag="renew"):
    """Asks for a new certificate: half of the life of the one that the node has is over."""


class LastPoll(msgspec.Struct, frozen=True, tag="last-poll"):
    """When a machine polled last; 0: not lately."""

    machine: Name
    at: Instant


ToNode: TypeAlias = (
    Welcome
    | Unwelcome
    | SnapshotPart
    | SnapshotEnd
    | News
    | Hide
    | Unhide
    | Joined
    | Shown
    | ReadLease
    | Pong
    | Answer
    | Renewed
    | AskLastPoll
    | Goodbye
    | UnknownMessage
)
ToControl: TypeAlias = (
    NodeHello
    | Held
    | Hidden
    | Enable
    | Approve
    | Prepare
    | AskPrepared
    | Postpone
    | AskToken
    | WhoIs
    | Ping
    | Kept
    | Report
    | Renew
    | LastPoll
    | UnknownMessage
)


# A host that has no certificate yet, and control.


class AskAuthority(msgspec.Struct, frozen=True, tag="ask-authority"):
    """Asks for the certificate of the authority, whose fingerprint is in the token."""


class Join(msgspec.Struct, frozen=True, kw_only=True, tag="join"):
    """Asks for a certificate. Sent only to whom the authority vouches for."""

    token: Annotated[str, Meta(max_length=256)]
    request: Annotated[str, Meta(max_length=8_192)]  # PEM
    host: Name = ""
    machine: Annotated[str, Meta(max_length=256)] = ""
    driver: bool = False  # for the driver process of the host, instead of its node


class AuthorityAnswer(msgspec.Struct, frozen=True, tag="authority"):
    certificate: str  # PEM


class Issued(msgspec.Struct, frozen=True, kw_only=True, tag="issued"):
    """The answer to `Join`."""

    host: str
    certificate: str  # PEM
    trusted: str  # certificates of authorities (PEM)
    control: tuple[str, ...]  # addresses for nodes


FromNewHost: TypeAlias = AskAuthority | Join | UnknownMessage
ToNewHost: TypeAlias = AuthorityAnswer | Issued | Unwelcome | UnknownMessage
