"""Control's side of the connections to the nodes on hosts.

A node shows the groups that have machines on its host, and is told nothing else. It cannot be ended
from here, so it has a *read lease*: until then nothing newer is shown elsewhere without it. Read
leases are renewed while it confirms what it is told. Without a confirmation, a change waits until
the read lease has run out, and is then shown without that node.

A host without a connection to its node is *unreachable* for those who decide
(`service.indexes.unreachable_hosts`): nothing starts for the machines on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

import msgspec

from forewarn import __version__
from forewarn.core import Event, Group, Machine, Refused, Status, Time
from forewarn.core.registry import GroupForgotten, HostPut, HostRemoved
from forewarn.core.time import SECOND
from forewarn.metadata.publishing import updates
from forewarn.metadata.publishing.calls import MAX_CALLS, Calls
from forewarn.metadata.publishing.lost_commits import WENT_BACK, LostCommits
from forewarn.metadata.publishing.messages import (
    MAX_GREETING,
    MAX_HIDDEN,
    NODE_PROTOCOLS,
    TWO_ROUNDS,
    Answer,
    Approve,
    AskLastPoll,
    AskPrepared,
    AskToken,
    Call,
    Changed,
    Enable,
    Goodbye,
    Held,
    Hidden,
    Hide,
    Joined,
    Kept,
    LastPoll,
    NodeHello,
    Ping,
    Pong,
    Postpone,
    Prepare,
    Publication,
    ReadLease,
    Renew,
    Renewed,
    Report,
    Shown,
    SnapshotEnd,
    SnapshotPart,
    ToControl,
    Unhide,
    Unwelcome,
    Welcome,
    WhoIs,
)
from forewarn.metadata.publishing.publisher import (
    Announcement,
    Member,
    PendingPublication,
    Publisher,
)
from forewarn.metadata.publishing.strays import Strays
from forewarn.metadata.upstream import LocalUpstream
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.indexes.unreachable_hosts import NodeConnection
from forewarn.service.platform.enrollment import Enrollments
from forewarn.service.platform.hosts import Hosts
from forewarn.store.port import Commit, Store, StoreFailed
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger
from forewarn.support.message_stream import (
    Allowance,
    BrokenConnection,
    MessageStream,
    Misbehaved,
    UnknownMessage,
    at_most,
    frame,
)
from forewarn.support.text import GUID
from forewarn.support.twins import Twins

TWO_NODES = (
    "two nodes have the certificate of this host, so neither is served; end the one on the clone,"
    " or give each host a certificate of its own"
)
READ_LEASE = 6.0  # seconds
SHOWN_WITHIN = READ_LEASE + 1.0  # seconds: then a change is shown, also without a silent node
# Seconds after which a node gets another read lease of its own: nearly always, one is sent before
# with the answer to a sign of life, every 3 seconds.
RENEW_EVERY = 3.5
SAME_LEASE = 0.1  # seconds for which all nodes get the same one
# Seconds without a confirmation, after which no read lease is renewed. Together with READ_LEASE
# less than SHOWN_WITHIN: whoever waits for the node waits until the read lease has run out.
RENEW_WITHIN = 0.5
CONFIRM_WITHIN = 2.0  # seconds without a confirmation, after which a node may be disconnected
SNAPSHOT_WITHIN = 10.0  # seconds in which a node has to confirm all groups
QUIET = 15.0  # seconds without a message, after which a node is disconnected: it sends one every 3
JOIN_EVERY = 0.05  # seconds between two looks whether a node may join
CHECK_EVERY = 0.5  # seconds between two looks at the nodes
SLICE = 64  # groups of one message
# What a node may send in a second, in bytes, with a host that was taken over in mind. A node sends
# far less; in particular, its endpoint lets a machine call 10 times a second.
SENT_BY_NODE = 128 * 1024
SENT_BY_MACHINE = 16 * 1024
SENT_BY_EVENT = 160  # for each machine and each event that it is shown
CALL_COST = 1_024  # likewise what a guest asks for, which has to be decided
MAX_GREETINGS = 4  # connections of a host that are not served yet
BARRED_FOR = 10.0  # seconds without a connection for a node that has sent what it must not send
# Seconds after a move in which the former host answers the machine if the new one is cut off: that
# may not have shown it yet, and nobody is harmed if it has.
JUST_MOVED = 30.0
MAX_UNSENT = 32 * 1024 * 1024  # bytes queued for a node; if there are more, it is disconnected

T = TypeVar("T")

log = logger("forewarn")


class _Lease(msgspec.Struct, frozen=True):
    """What a node without a connection may be showing."""

    until: float = 0.0
    groups: frozenset[str] = frozenset()


class _Move(NamedTuple):
    """A machine that was moved a moment ago."""

    group: str
    former: str
    host: str
    at: float


class _HostsByGroup:
    """Hosts by the groups that their nodes may be showing, each with the end of its read lease."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, float]] = {}

    def of(self, group: str) -> dict[str, float]:
        return self._groups.get(group, {})

    def add(self, host: str, lease: _Lease) -> None:
        for group in lease.groups:
            self._groups.setdefault(group, {})[host] = lease.until

    def remove(self, host: str, lease: _Lease) -> None:
        for group in lease.groups:
            hosts = self._groups.get(group, {})
            hosts.pop(host, None)
            if not hosts:
                self._groups.pop(group, None)


class _Absent:
    """Hosts without a connection, and what their nodes may be showing."""

    def __init__(self) -> None:
        self._by_host: dict[str, _Lease] = {}
        self._by_group = _HostsByGroup()
        self._not_greeted = _HostsByGroup()  # those of them that have not sent a hello
        self.greeted: Counter[str] = Counter()  # by host: connections that are about to be served

    def add(self, host: str, lease: _Lease) -> None:
        self.remove(host)
        self._by_host[host] = lease
        self._by_group.add(host, lease)
        if host not in self.greeted:
            self._not_greeted.add(host, lease)

    def remove(self, host: str) -> _Lease:
        lease = self._by_host.pop(host, _Lease())
        self._by_group.remove(host, lease)
        self._not_greeted.remove(host, lease)
        return lease

    @contextlib.contextmanager
    def greeting(self, host: str) -> Iterator[None]:
        """Consider a host as about to have a connection."""
        self.greeted[host] += 1
        self._not_greeted.remove(host, self._by_host.get(host, _Lease()))
        try:
            yield
        finally:
            _decrease(self.greeted, host)
            if host not in self.greeted and host in self._by_host:
                self._not_greeted.add(host, self._by_host[host])

    def until(self, host: str) -> float:
        return self._by_host.get(host, _Lease()).until

    def shown(self, group: str, now: float) -> bool:
        """Return whether one of them may be showing a group."""
        return any(until > now for until in self._by_group.of(group).values())

    def showing(self, groups: Iterable[str], now: float) -> str | None:
        """Return one of them that has not sent a hello, and may be showing one of the groups; of
        several the last, so that fewer are asked for in turn if they come in their order."""
        of_groups = (reversed(self._not_greeted.of(group).items()) for group in groups)
        return next((host for host, until in chain(*of_groups) if until > now), None)

    def groups(self, host: str) -> Collection[str]:
        return self._by_host.get(host, _Lease()).groups

    def remove_before(self, now: float) -> None:
        """Forget read leases that have run out."""
        for host in [h for h, lease in self._by_host.items() if lease.until <= now]:
            self.remove(host)


class NodeMember(Member):
    """A node that is connected."""

    def __init__(
        self,
        nodes: HostNodes,
        stream: MessageStream[ToControl],
        hello: NodeHello,
        protocol: int,
        groups: Iterable[str],
        before: _Lease,
        certificate: bytes = b"",
    ) -> None:
        # Without a read lease it may show what was before as long as it likes: nobody waits for it.
        serving = hello.serving and guard.boottime() < before.until
        super().__init__(serving=serving, groups=groups)
        self._nodes = nodes
        self.stream = stream
        self.host = hello.host
        self.version = hello.version
        self.certificate = certificate
        self.allowance = Allowance(SENT_BY_NODE, lambda: nodes.sent_by(hello.host))
        self.two_rounds = protocol >= TWO_ROUNDS
        self.calls = 0
        self.sent: set[str] = set()  # groups that it was sent
        self.behind: tuple[str, ...] = ()  # groups that it may be showing as they were before
        self.leased_until = before.until
        self.heard = guard.boottime()  # when it sent something last
        self.caught_up = asyncio.Event()  # set when it has confirmed all groups

    def tell(self, news: Announcement) -> None:
        if news.documents_only and self.sent.issuperset(news.after):
            for framed in news.frames:
                self._nodes.send(self, framed)
            return
        publications = [
            Publication(number, tuple(self._own(changes, news)))
            for number, changes in news.changes.items()
        ]
        if own := [publication for publication in publications if publication.groups]:
            for message in updates.news(own):
                self._nodes.send(self, frame(message))

    def _own(self, changes: Iterable[Changed], news: Announcement) -> Iterator[Changed]:
        """Yield the changes of its own groups, and of these only its own machines."""
        for change in changes:
            name = change.view.name
            machines = self._nodes.machines_on(self.host, news.after[name])
            if name not in self.sent:
                if machines:
                    self.sent.add(name)
                    yield Changed(change.view, machines, news.after[name].place)
                elif self.catching_up:  # it may be showing it, and has to confirm that it does not
                    yield updates.removed(name)
            elif machines:
                own = None if change.machines is None else machines
                yield Changed(change.view, own, change.place)
            else:
                self.sent.discard(name)
                yield updates.removed(name)

    def hide(self, numbers: Collection[int]) -> None:
        for some in _slices(tuple(numbers), MAX_HIDDEN):
            self._nodes.send(self, frame(Hide(tuple(some))))

    def unhide(self, numbers: Collection[int]) -> None:
        self._nodes.send(self, frame(Unhide(tuple(numbers))))

    def show(self, numbers: Collection[int]) -> None:
        self._nodes.send(self, frame(self._nodes.shown(numbers)))

    def late(self, publication: PendingPublication) -> bool:
        waited = guard.monotonic() - publication.announced_at
        return guard.boottime() >= self._nodes.leased_until(self.host) and waited > CONFIRM_WITHIN

    def fence(self, why: str) -> None:
        """Disconnect it. Its read lease has run out, or is waited for."""
        self._nodes.cut(self, why)


class HostNodes:
    def __init__(
        self,
        upstream: LocalUpstream,
        store: Store,
        hosts: Hosts,
        host_index: HostIndex,
        publisher: Publisher,
        tasks: guard.Tasks,
        enrollments: Enrollments,
        lost_commits: LostCommits,
    ) -> None:
        self._upstream = upstream
        self.enrollments = enrollments
        self._store = store
        self._hosts = hosts
        self._host_index = host_index
        self._unreachable = host_index.unreachable
        self._publisher = publisher
        self._tasks = tasks
        self._calls = Calls(upstream, publisher, tasks)
        self._members: dict[str, NodeMember] = {}
        self._absent = _Absent()
        self._placed_machines = updates.PlacedMachines()
        self._just_moved: dict[str, _Move] = {}  # by machine
        self._recording: set[str] = set()  # machines of which it is being recorded who answers
        self._with_moves: dict[str, None] = {}  # groups with machines that are being moved
        # By host: machines that move there, or are answered there because the node of the host that
        # they have moved to is cut off, each with its group.
        self._arriving: dict[str, dict[str, str]] = {}
        self._leaving: dict[str, dict[str, str]] = {}
        self._left_at: dict[tuple[str, str], Time] = {}  # since when a machine is in `_leaving`
        self._catching_up: Counter[str] = Counter()  # by group: nodes that may show what was before
        self._refused: dict[str, LogThrottle] = {}  # by host; as many as there are certificates
        self._last_connections: dict[str, NodeConnection] = {}  # of hosts that have had one
        self._ended: dict[str, str] = {}  # by host: why its last connection was ended
        self.lost_commits = lost_commits
        self._greeting: Counter[str] = Counter()  # by host: connections that are not served yet
        self._twins = Twins()
        self._barred: dict[str, float] = {}  # by host: until when it gets no connection
        self.strays = Strays(hosts.platform, host_index, tasks, self._ask_last_poll)
        self._unreachable.connection = self.connection
        self._closing = False
        self._renewed = float("-inf")  # when the last read lease was made
        self._until = 0.0  # how long it lasts
        self._framed = b""
        publisher.place = self._placed
        publisher.absent = self.absent
        store.on_own_commit(lambda commit, _: lost_commits.on_commit(commit))
        store.on_own_commit(self._on_commit)
        self._begun = False

    async def begin(self) -> None:
        """Note what all nodes may be showing, in turns with everything else. Whoever decided before
        may have given a read lease to any of them, and have told it of machines that were about to
        move there. No node is served before."""
        until = guard.boottime() + READ_LEASE
        self._unreachable.begin(self.now())
        for names in _slices(list(self._store.groups)):
            groups = [group for name in names if (group := self._store.groups.get(name))]
            self._note_moves(groups)
            self._note_leaving(groups)
            await guard.pause(0)
        moving = {group for group, _ in self._moving()}
        for hosts in _slices(list(self._store.registry.hosts.values())):
            for host in hosts:
                if host.node:
                    leaving = self._leaving.get(host.name, {}).values()
                    showing = moving.union(self._host_index.groups_on(host.name), leaving)
                    self._absent.add(host.name, _Lease(until, frozenset(showing)))
            await guard.pause(0)
        self._begun = True

    def now(self) -> Time:
        return self._upstream.instant().at

    def shown(self, numbers: Iterable[int]) -> Shown:
        return Shown(tuple(numbers), self.now(), *self.lost_commits.last)

    def connection(self, host: str) -> NodeConnection | None:
        """Return what is known of the node of a host, from its connection or from the last one."""
        member = self._members.get(host)
        return self._last_connections.get(host) if member is None else self._connection_of(member)

    def _connection_of(self, member: NodeMember) -> NodeConnection:
        silent = guard.boottime() - member.heard
        return NodeConnection(
            version=member.version,
            lag=round(_behind(member) * SECOND),
            heard=self.now() - round(silent * SECOND),
            ended=self._ended.get(member.host, ""),
        )

    def sent_by(self, host: str) -> int:
        """Return how many bytes the node of a host may send in a second."""
        arriving = self._arriving.get(host, {})
        groups = Counter(dict.fromkeys(self._host_index.groups_on(host), 0))
        groups.update(arriving.values())
        sent = SENT_BY_NODE
        for name, moving in groups.items():
            if group := self._store.groups.get(name):
                machines = moving + len(self._placed_machines.on_host(group, host))
                sent += machines * (SENT_BY_MACHINE + SENT_BY_EVENT * len(group.events))
        return sent

    def leased_until(self, host: str) -> float:
        """Return until when the node of a host has a read lease."""
        member = self._members.get(host)
        return max(self._absent.until(host), member.leased_until if member else 0.0)

    def absent(self, groups: Collection[str]) -> bool:
        """Return whether a node without a connection may be showing one of the groups."""
        now = guard.boottime()
        return not self._begun or any(self._absent.shown(group, now) for group in groups)

    def _placed(self, group: Group) -> Iterator[NodeMember]:
        """Yield the nodes that have to show a group."""
        hosts = dict.fromkeys(machine.host for machine in group.machines)
        for moving in (self._arriving, self._leaving):
            hosts |= {host: None for host, of in moving.items() if group.name in of.values()}
        for host in hosts:
            if member := self._members.get(host):
                yield member

    def machines_on(self, host: str, group: Group) -> tuple[Machine, ...]:
        """Return the machines of a group that are on a host, or move there, or have moved away to
        one that cannot answer them yet."""
        there = self._placed_machines.on_host(group, host)
        arriving, leaving = self._arriving.get(host, {}), self._leaving.get(host, {})
        if not arriving and not leaving:
            return there
        names = {machine.name for machine in there}
        others = [machine for machine in group.machines if machine.name not in names]
        return (
            *there,
            *(updates.to_next_host(machine) for machine in others if machine.name in arriving),
            *(updates.to_guests(machine) for machine in others if machine.name in leaving),
        )

    async def watch(self) -> None:
        """Renew read leases, and look for nodes that are silent."""
        while True:
            await guard.pause(CHECK_EVERY)
            now = guard.boottime()
            due = []
            for member in list(self._members.values()):
                if now - member.heard > QUIET:
                    self.cut(member, f"it has sent nothing for {QUIET:g} s")
                elif member.joined and member.leased_until - now <= READ_LEASE - RENEW_EVERY:
                    due.append(member)
            self._renew(*due)
            self._absent.remove_before(now)
            self._watch_just_moved(now)
            self.strays.check()

    def _renew(self, *members: NodeMember) -> None:
        """Renew the read leases of nodes, except for those that do not confirm what they are
        told."""
        framed = self._renewal()
        for member in members:
            if _behind(member) <= RENEW_WITHIN:
                member.leased_until = self._until
                self.send(member, framed)

    def _renewal(self) -> bytes:
        """Return a read lease until `_until`: the same one for a moment, for all whose turn it
        is."""
        now = guard.boottime()
        if now >= self._renewed + SAME_LEASE:
            self._renewed, self._until = now, now + READ_LEASE
            if leadership := self._store.leadership:
                self._until = min(self._until, leadership.until)
            self._framed = frame(ReadLease(self._until, self.now(), *self.lost_commits.last))
        return self._framed

    def _answer_ping(self, member: NodeMember, ping: Ping) -> None:
        """Answer a sign of life, in one piece with a read lease: one message less to send for
        it."""
        now = guard.boottime()
        pong = frame(Pong(ping.sent, now, self.now()))
        if (
            member.joined
            # Not for every one of many.
            and member.leased_until - now <= READ_LEASE - RENEW_EVERY / 2
            and _behind(member) <= RENEW_WITHIN
        ):
            lease = self._renewal()
            member.leased_until = self._until
            pong += lease
        self.send(member, pong)

    # A connection.

    async def serve(
        self, stream: MessageStream[ToControl], host: str, certificate: bytes = b""
    ) -> None:
        """Serve a node until its connection is broken. `host` is the one that it can be the node
        of, and `certificate` (DER) says so, unless the node is on control's own host."""
        member: NodeMember | None = None
        sending: asyncio.Task[None] | None = None
        if self._greeting[host] >= MAX_GREETINGS or not self._may_connect(host):
            stream.cut()
            return
        try:
            self._greeting[host] += 1
            try:
                async with asyncio.timeout(SNAPSHOT_WITHIN):
                    hello = await stream.receive(at_most(MAX_GREETING))
                    problem = self._certificate_problem(host, certificate)
                    problem = problem or await self._problem(hello, host)
                    if not problem:
                        await self._wait_for_others(host)
                        problem = self._went_back()
                        problem = problem or self._certificate_problem(host, certificate)
            finally:
                _decrease(self._greeting, host)
            if problem:
                if self._refused.setdefault(host, LogThrottle()).record():
                    log.warning("a node was refused", host=host, why=problem)
                stream.send(Unwelcome(problem))
                await stream.drain()
                return
            self._refused.pop(host, None)
            if self._closing:
                raise BrokenConnection("control is stopping")
            assert isinstance(hello, NodeHello)
            member = self._enter(stream, hello, certificate)
            sending = self._tasks.start(self._bring_up(member), f"bringing up node {host}")
            await stream.deliver(partial(self._receive, member), member.allowance.admit)
        except (BrokenConnection, TimeoutError) as error:
            why = str(error) or f"it has sent no hello within {SNAPSHOT_WITHIN:g} s"
            if isinstance(error, Misbehaved):
                self._barred[host] = guard.monotonic() + BARRED_FOR
                log.error("a node has sent what it must not send", host=host, why=why)
            elif not self._closing:
                log.warning("a node is no longer connected", host=host, why=why)
            if member is None or self._is_connected(member):
                self._ended[host] = why
        finally:
            if sending is not None:
                sending.cancel()
            if member is not None:
                self._leave(member)
            stream.cut()

    async def _wait_for_others(self, host: str) -> None:
        """Wait until all nodes have a connection, or no read lease, that may be showing a group of
        this host as it was before. The node could not join earlier, and would hide the groups that
        have changed as soon as it is sent them."""
        groups = {*self._absent.groups(host), *self._host_index.groups_on(host)}
        absent = self._absent
        with absent.greeting(host):
            while other := absent.showing(groups, guard.boottime()):
                while other not in absent.greeted and guard.boottime() < absent.until(other):
                    await guard.pause(JOIN_EVERY)

    def _certificate_problem(self, host: str, certificate: bytes) -> str:
        return self.enrollments.problem(host, certificate) if certificate else ""

    def _may_connect(self, host: str) -> bool:
        if guard.monotonic() < self._barred.get(host, 0.0):
            return False
        self._barred.pop(host, None)
        return True

    async def _problem(self, hello: ToControl, host: str) -> str:
        if not isinstance(hello, NodeHello):
            return "a node must send a hello first"
        if hello.host != host:
            return (
                f"its connection is for the node of host '{host}' (as its certificate says or, on"
                f" control's own host, nodes_host), not '{hello.host}'"
            )
        if not set(hello.protocols) & set(NODE_PROTOCOLS):
            return (
                f"this is forewarn {__version__} (protocols {NODE_PROTOCOLS}), the node is"
                f" {hello.version} (protocols {hello.protocols}); upgrade the older one"
            )
        if self._twins.greeted(host, hello.instance, guard.monotonic()):
            if member := self._members.get(host):
                self.cut(member, TWO_NODES)
            self._ended[host] = TWO_NODES
            return TWO_NODES
        leadership = self._store.leadership
        term = leadership.term if leadership else 0
        if leadership and guard.boottime() >= leadership.until and hello.term > term:
            return f"it has followed term {hello.term}; this is term {term}"  # which is over
        went_back = await self.lost_commits.lacks(hello, term)
        refused = await self._hosts.node_joined(host)
        if isinstance(refused, Refused) and not went_back:
            return refused.message
        if host not in self._members:
            self._unreachable.cut_off(
                host, self.now()
            )  # if it is the first time, until it has joined
        if went_back:
            if await self.lost_commits.note(hello, term):
                for member in list(self._members.values()):
                    self.cut(member, WENT_BACK)
            return (
                f"it was told of commit {hello.commit} in term {hello.term}, which this state"
                f" lacks: it ends with commit {self._store.seq} in term {term}"
            )
        self.lost_commits.has(host)
        return self._went_back()

    def _went_back(self) -> str:
        return WENT_BACK if self.lost_commits.known else ""

    def _enter(
        self, stream: MessageStream[ToControl], hello: NodeHello, certificate: bytes
    ) -> NodeMember:
        if earlier := self._members.get(hello.host):
            self.cut(earlier, "another connection has taken its place")
        term = self._store.leadership.term if self._store.leadership else 0
        protocol = max(set(hello.protocols) & set(NODE_PROTOCOLS))
        commit, commit_at = self.lost_commits.last
        stream.send(
            Welcome(
                protocol=protocol,
                version=__version__,
                rules=self._upstream.instant().rules,
                term=term,
                commit=commit,
                commit_at=commit_at,
                tokens=self._upstream.issues_tokens,
            )
        )
        here = [n for n in self._host_index.groups_on(hello.host) if n in self._publisher.announced]
        for machine, name in hello.arriving.items():  # as whoever decided before has told it
            group = self._publisher.announced.get(name)
            if group is not None and self._still_moves(group, machine, hello.host):
                self._arriving.setdefault(hello.host, {})[machine] = name
        moving = [m.get(hello.host, {}).values() for m in (self._arriving, self._leaving)]
        before = self._absent.remove(hello.host)
        shows = before.groups if hello.serving else ()
        groups = {*here, *chain(*moving), *shows}
        member = NodeMember(self, stream, hello, protocol, groups, before, certificate)
        self._members[hello.host] = member
        if member.catching_up:
            member.behind = tuple(member.groups)
            self._catching_up.update(member.behind)
        self._publisher.enter(member)
        return member

    def _caught_up(self, member: NodeMember) -> None:
        for group in member.behind:
            _decrease(self._catching_up, group)
        member.behind = ()
        member.caught_up.set()

    def _is_connected(self, member: NodeMember) -> bool:
        return self._members.get(member.host) is member

    def _leave(self, member: NodeMember) -> None:
        if self._is_connected(member):
            del self._members[member.host]
            self._last_connections[member.host] = msgspec.structs.replace(
                self._connection_of(member), lag=None
            )
            if member.serving:
                shows = frozenset(member.groups)
                self._absent.add(member.host, _Lease(member.leased_until, shows))
            self._unreachable.cut_off(member.host, self.now())
            self._caught_up(member)
            self._answer_just_moved(member.host)
            self._publisher.leave(member)

    async def _bring_up(self, member: NodeMember) -> None:
        """Send a node its groups, and let it show them once no other node shows anything older."""
        stream, publisher = member.stream, self._publisher
        try:
            for names in _slices(sorted(member.groups)):
                self._send_groups(member, names)
                await stream.drain()
            stream.send(SnapshotEnd(publisher.number))
            async with asyncio.timeout(SNAPSHOT_WITHIN):
                await member.caught_up.wait()
            while group := self._behind_elsewhere(member):
                while self._is_behind(group):
                    await guard.pause(JOIN_EVERY)
        except BrokenConnection:
            return  # `serve` has noticed
        except TimeoutError:
            self.cut(
                member,
                f"it was sent its groups, and has not confirmed them for {SNAPSHOT_WITHIN:g} s",
            )
            return
        if not self._is_connected(member):
            return  # it was cut off meanwhile
        member.joined = member.serving = True
        pending = publisher.pending(member.groups)
        joined = Joined(tuple(set(pending.values())), self.now(), *self.lost_commits.last)
        self.send(member, frame(joined))
        self._renew(member)
        self._unreachable.joined(member.host, self.now())
        self._forget_leaving()
        self._record_arrived(member.host)
        log.info("a node answers guests", host=member.host)

    def _send_groups(self, member: NodeMember, names: Iterable[str]) -> None:
        """Send a node a part of its snapshot, and keep nothing of it: very many may join at once,
        and wait for each other."""
        announced = self._publisher.announced
        parts = tuple(
            updates.guest_news(announced[name], machines)
            for name in names
            if name in announced and (machines := self.machines_on(member.host, announced[name]))
        )
        sent = [part.view.name for part in parts]
        member.sent.update(sent)
        member.stream.send(SnapshotPart(parts, self._publisher.pending(sent)))

    def _behind_elsewhere(self, member: NodeMember) -> str | None:
        """Return one of its groups that another node may be showing as it was before, if any."""
        return next(filter(self._is_behind, member.groups), None)

    def _is_behind(self, group: str) -> bool:
        return group in self._catching_up or self._absent.shown(group, guard.boottime())

    def _receive(self, member: NodeMember, message: ToControl) -> None:
        if self._is_connected(member):
            member.heard = guard.boottime()
            match message:
                case Ping():
                    self._answer_ping(member, message)
                case Held(number=number, whole=whole):
                    self._publisher.confirm(member, number, whole=whole)
                    if whole:
                        self._publisher.leave_groups(member, member.groups - member.sent)
                        self._caught_up(member)
                case Hidden(numbers=numbers):
                    self._publisher.hidden(member, frozenset(numbers))
                case Kept():
                    self._unreachable.missed_nothing(member.host)
                case Report():
                    report = self._own(member, message)
                    self._calls.record(report)
                    self._note_polls_of_leaving(member.host, report)
                case LastPoll(machine=machine, at=at):
                    if any(m.name == machine for m in self._host_index.machines_on(member.host)):
                        self.strays.heard(machine, at)
                case WhoIs(id=id) if member.calls >= MAX_CALLS:
                    member.stream.send(Answer(id, yes=False))
                case WhoIs(id=id, address=address):
                    member.allowance.spend(CALL_COST)
                    member.calls += 1
                    self._tasks.start(self._look_for(member, id, address), "looking for a machine")
                case Enable() | Approve() | Prepare() | AskPrepared() | Postpone() | AskToken():
                    self._take(member, message)
                case Renew():
                    member.allowance.spend(CALL_COST)
                    if renewed := self.enrollments.renew(member.host, member.certificate):
                        member.stream.send(Renewed(renewed, self.enrollments.trusted))
                case NodeHello():
                    raise BrokenConnection("a second hello")
                case UnknownMessage():
                    pass

    # What a node asks for.

    def _take(self, member: NodeMember, call: Call) -> None:
        """Carry a call out, if it is for a group, and a machine, of its host, and for events that
        there may be."""
        member.allowance.spend(CALL_COST)
        if isinstance(call, Approve) and not all(map(GUID.fullmatch, call.ids)):
            member.stream.send(Answer(call.id, yes=False))
        elif not isinstance(call, Approve | Enable | AskToken) and not GUID.fullmatch(call.event):
            member.stream.send(Answer(call.id))
        elif self._may(member, call):
            self._calls.take(member, call)
        else:
            member.stream.send(Answer(call.id, failed="it is not on this host"))

    def _may(self, member: NodeMember, call: Call) -> bool:
        group = self._store.groups.get(call.group)
        if group is None:
            return False
        machines = {machine.name for machine in self.machines_on(member.host, group)}
        if isinstance(call, Enable | AskPrepared):  # which are for a group
            return bool(machines)
        return call.machine in machines

    def _own(self, member: NodeMember, report: Report) -> Report:
        """Return what a report says about machines and groups of its host."""
        here = self._host_index.groups_on(member.host)
        machines = {m.name for m in self._host_index.machines_on(member.host)}
        machines |= self._arriving.get(member.host, {}).keys()
        machines |= self._leaving.get(member.host, {}).keys()
        now = self.now()
        return Report(
            polled=tuple(p for p in report.polled if p.machine in machines),
            alive=tuple(group for group in report.alive if group in here),
            unknown=tuple(
                msgspec.structs.replace(
                    caller,
                    first=max(0, min(caller.first, now)),
                    last=max(0, min(caller.last, now)),
                    host=member.host,
                )
                for caller in report.unknown
            ),
        )

    def _ask_last_poll(self, host: str, machine: str) -> bool:
        """Ask the node of a host when a machine there polled last. Returns whether there is one."""
        member = self._members.get(host)
        if member is None or not member.joined:
            return False
        member.stream.send(AskLastPoll(machine))
        return True

    async def _look_for(self, member: NodeMember, id: int, address: str) -> None:
        try:
            known = await self._find(member, address)
        finally:
            member.calls -= 1
        member.stream.send(Answer(id, yes=known))

    async def _find(self, member: NodeMember, address: str) -> bool:
        """Tell a node of the machine that is about to move to its host and has this address.
        Returns whether there is one."""
        groups = {
            *self._host_index.groups_on(member.host),
            *self._leaving.get(member.host, {}).values(),
        }
        known = (group for name in groups if (group := self._store.groups.get(name)))
        here = (machine for group in known for machine in self.machines_on(member.host, group))
        if any(machine.alive and address in machine.addresses for machine in here):
            # It has just come, and is about to be shown there.
            await self._publisher.shown(groups)
            return True
        moving = self._moving(address) if self._is_connected(member) else []
        if len(moving) == 1 and member.joined:
            ((name, moved),) = moving
            arriving = self._arriving.setdefault(member.host, {})
            if moved not in arriving:
                arriving[moved] = name
                self._publisher.place_again(name)
            await self._publisher.shown((name,))
        elif not moving and member.joined and self._is_connected(member):
            await self.strays.polled(address, member.host)
        return len(moving) == 1

    def _moving(self, address: str | None = None) -> list[tuple[str, str]]:
        """Return the machines that are being moved, or those with an address, and their groups."""
        return [
            (group.name, machine.name)
            for name in self._with_moves
            if (group := self._store.groups.get(name))
            for event in group.events
            if _moves(event)
            for machine in group.named(event.resources).values()
            if machine.alive and (address is None or address in machine.addresses)
        ]

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        """Forget machines that have arrived, or do not move any more; and have a node join again
        whose host has left the fleet, or is not expected to have one."""
        for put in commit.puts:
            match put:
                case HostPut(host=known) if not known.node:
                    self._join_again(known.name)
                case HostPut(host=known) if member := self._members.get(known.name):
                    if problem := self._certificate_problem(known.name, member.certificate):
                        self.cut(member, problem)
                case HostRemoved(name=name):
                    self._join_again(name)
                case GroupForgotten(name=name):
                    self._placed_machines.forget(name)
        self._note_moves(changed.values())
        announced = self._publisher.announced
        placed = [
            (before, after)
            for after in changed.values()
            if (before := announced.get(after.name)) is None
            or before.machines is not after.machines
        ]
        for before, after in placed:
            self._note_just_moved(before, after)
        self._note_leaving(after for _, after in placed)
        for host, arriving in list(self._arriving.items()):
            for machine, group in list(arriving.items()):
                if group in changed and not self._still_moves(changed[group], machine, host):
                    del arriving[machine]
                    self._publisher.place_again(group)
            if not arriving:
                del self._arriving[host]

    def _note_moves(self, groups: Iterable[Group]) -> None:
        for group in groups:
            if any(map(_moves, group.events)):
                self._with_moves[group.name] = None
            else:
                self._with_moves.pop(group.name, None)

    def _note_leaving(self, groups: Iterable[Group]) -> None:
        """Have machines answered where they were that have moved to a host whose node is cut off
        since."""
        for group in groups:
            for machine in group.machines:
                if not machine.answered_on and not self._just_moved:
                    continue  # as nearly always, and there may be very many
                former = self._answered_on(machine)
                if former and self._still_leaves(machine, former):
                    self._leaving.setdefault(former, {})[machine.name] = group.name
                    self._left_at.setdefault((former, machine.name), self.now())
        self._forget_leaving()

    def _answered_on(self, machine: Machine) -> str:
        """Return the former host of a machine, which answers it while the present one is cut off;
        empty if there is none."""
        move = self._just_moved.get(machine.name)
        if machine.answered_on or move is None or move.host != machine.host:
            return machine.answered_on
        return move.former

    def _note_just_moved(self, before: Group | None, group: Group) -> None:
        hosts = {machine.name: machine.host for machine in before.machines} if before else {}
        for machine in group.machines:
            former, move = hosts.get(machine.name, ""), self._just_moved.get(machine.name)
            if former in ("", machine.host) or (move is not None and move.host == machine.host):
                continue
            at = guard.boottime()
            self._just_moved[machine.name] = _Move(group.name, former, machine.host, at)

    def _answer_just_moved(self, host: str) -> None:
        """Have machines answered where they were that have just moved to a host whose node is cut
        off now."""
        moves = {n: m for n, m in self._just_moved.items() if m.host == host}
        names = {move.group for move in moves.values()}
        self._note_leaving(group for name in names if (group := self._store.groups.get(name)))
        for name in names:
            self._publisher.place_again(name)

    def _watch_just_moved(self, now: float) -> None:
        """Forget moves after a while; and record which machines are answered where they were, so
        that whoever decides next knows it, too."""
        for name, move in list(self._just_moved.items()):
            if not self._unreachable.is_unreachable(move.host):
                if now - move.at > JUST_MOVED:
                    del self._just_moved[name]
                continue
            group = self._store.groups.get(move.group)
            machine = group.machine(name) if group else None
            if machine is None or machine.host != move.host or machine.answered_on:
                del self._just_moved[name]
            elif name in self._leaving.get(move.former, {}) and name not in self._recording:
                self._record_answered(name, former=move.former, host=move.host)

    def _record_arrived(self, host: str) -> None:
        """Record that machines are answered on a host whose node has joined, and nowhere else, also
        if that is cut off again."""
        for machine in self._host_index.machines_on(host):
            if machine.answered_on:
                self._record_answered(machine.name, former="", host=host)

    def _record_answered(self, machine: str, *, former: str, host: str) -> None:
        async def record() -> None:
            try:
                await self._hosts.platform.answer_on(machine, former=former, host=host)
            except StoreFailed:
                pass  # it is tried again, or when a node joins again
            finally:
                self._recording.discard(machine)

        self._recording.add(machine)
        self._tasks.start(record(), "recording who answers")

    def _forget_leaving(self) -> None:
        """Have machines answered only where they are, once that is possible."""
        for host, leaving in list(self._leaving.items()):
            for machine, group in list(leaving.items()):
                known = self._store.groups.get(group)
                found = known.machine(machine) if known else None
                if (
                    found is None
                    or self._answered_on(found) != host
                    or not self._still_leaves(found, host)
                ):
                    del leaving[machine], self._left_at[host, machine]
                    self._publisher.place_again(group)
            if not leaving:
                del self._leaving[host]

    def _note_polls_of_leaving(self, host: str, report: Report) -> None:
        """Note that machines poll where they were, so that they may not have left after all."""
        leaving = self._leaving.get(host, {})
        for polled in report.polled if leaving else ():
            group = self._store.groups.get(leaving.get(polled.machine, ""))
            machine = group.machine(polled.machine) if group else None
            if machine is not None and polled.last > self._left_at[host, machine.name]:
                self.strays.polled_again(machine, host)

    def _still_leaves(self, machine: Machine, former: str) -> bool:
        """Return whether the node of its host is cut off, and no other machine has come to its
        former host that has one of its addresses."""
        if not machine.alive or not self._unreachable.is_unreachable(machine.host):
            return False
        there = self._host_index.machines_on(former)
        taken = {address for other in there if other.alive for address in other.addresses}
        return taken.isdisjoint(machine.addresses)

    def _join_again(self, host: str) -> None:
        if member := self._members.get(host):
            self.cut(member, "its host is not expected to have a node")

    def _still_moves(self, group: Group, name: str, host: str) -> bool:
        machine = group.machine(name)
        return (
            machine is not None
            and machine.host != host
            and any(_moves(event) and name in event.resources for event in group.events)
        )

    # Helpers.

    def send(self, member: NodeMember, framed: bytes) -> None:
        member.stream.send_frame(framed)
        if member.stream.unsent > MAX_UNSENT:
            self.cut(member, "it does not read what it is sent")

    def cut(self, member: NodeMember, why: str) -> None:
        """Disconnect a node; it connects again."""
        log.warning("a node is cut off", host=member.host, why=why)
        self._ended[member.host] = why
        self._leave(member)
        member.stream.cut()

    def close(self) -> None:
        self._closing = True
        self._publisher.unhide_all()
        for member in list(self._members.values()):
            member.stream.send(Goodbye())
            member.stream.close()


def _moves(event: Event) -> bool:
    """Return whether an event is moving its machines."""
    return event.relocates and event.status is Status.STARTED


def _behind(member: NodeMember) -> float:
    """Return the age in seconds of the first change of which a node has something to confirm."""
    if not member.unconfirmed:
        return 0.0
    return guard.monotonic() - next(iter(member.unconfirmed)).announced_at


def _decrease(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _slices(items: Sequence[T], size: int = SLICE) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
