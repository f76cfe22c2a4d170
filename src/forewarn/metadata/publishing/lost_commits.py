"""Whether the state has lost commits that nodes were told of: it was put back, made anew, or
restored unnoticed.

Every commit that a node is told of comes with when it was made. So a state that went back is also
noticed once it has as many commits again: those are others.
"""

from __future__ import annotations

from forewarn.core import Time
from forewarn.metadata.publishing.messages import NodeHello
from forewarn.store.port import Commit, PollSightings, Store, StoreFailed
from forewarn.support.logs import logger
from forewarn.support.message_stream import BrokenConnection

WENT_BACK = "the state went back: it lacks commits that nodes were told of"
REMEMBERED = 1_024  # commits; those of nodes that were away for longer are read

log = logger("forewarn")


class LostCommits:
    def __init__(self, store: Store, known: int, restored: Time | None) -> None:
        """`known` is a commit that the state has lost; 0 if it has lost none. `restored` is when it
        was last decided that the state is used as it is, whatever was known before."""
        self._store = store
        self.known = known
        self._restored = restored or 0
        self.last: tuple[int, Time] = store.seq, 0  # the last commit, and when it was made
        self._times: dict[int, Time] = {}  # of the last commits, by number
        self._by_host: dict[str, int] = {}  # commits that nodes were told of, and that are lost

    async def begin(self) -> None:
        """Read the last commit. `on_commit` is told of those that follow."""
        async for commit in self._store.commits(max(self._store.seq - 1, 0)):
            self.on_commit(commit)

    def on_commit(self, commit: Commit) -> None:
        self.last = commit.seq, commit.at
        self._times[commit.seq] = commit.at
        if len(self._times) > REMEMBERED:
            del self._times[next(iter(self._times))]

    async def lacks(self, hello: NodeHello, term: int) -> bool:
        """Return whether the state lacks what a node was told of."""
        if hello.term > term or hello.commit > self._store.seq:
            return True
        if hello.commit_at <= self._restored:
            return False
        made = await self._time(hello.commit)
        return made is not None and made != hello.commit_at

    async def _time(self, seq: int) -> Time | None:
        """Return when a commit was made; None if it was removed."""
        if seq not in self._times:
            try:
                async for commit in self._store.commits(seq - 1):
                    if commit.seq == seq:
                        return commit.at
                    break
            except StoreFailed as error:
                raise BrokenConnection(f"the state cannot be read: {error}") from error
        return self._times.get(seq)

    def has(self, host: str) -> None:
        """Note that the state has what the node of a host was told of."""
        self._by_host.pop(host, None)

    async def note(self, hello: NodeHello, term: int) -> bool:
        """Note that the state lacks what a node was told of. Returns whether it is the first time
        that this is certain: one node may have been taken over, two agree."""
        self._by_host[hello.host] = hello.commit
        nodes = sum(host.node for host in self._store.registry.hosts.values())
        # A state that was made anew does not know how many there are.
        if self.known or len(self._by_host) < (min(2, nodes) or 2):
            return False
        agreed = sorted(self._by_host.values())[-min(2, len(self._by_host))]
        self.known = max(agreed, self._store.seq + 1)
        log.error(WENT_BACK, known=agreed, commit=self._store.seq, term=term)
        await self._store.save(PollSightings(seen={}, known=self.known))
        return True

    @property
    def problem(self) -> str:
        """What is wrong, and what to run, if the state has lost commits."""
        if not self.known:
            return ""
        return (
            f"{WENT_BACK}. Guests are shown what they were shown, and nothing starts. Stop the"
            " service and run 'forewarn restored' to go on with this state, or bring back the one"
            " that is missing"
        )
