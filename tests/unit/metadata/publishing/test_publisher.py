"""Who is told what, and when it is shown: with members that a test makes confirm or be silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from forewarn.core import EventType, GroupKind, Machine, World, decide
from forewarn.core import commands as c
from forewarn.core.changes import Changes
from forewarn.core.registry import GroupForgotten
from forewarn.metadata.publishing.publisher import (
    COMPARE_SLICE,
    Announcement,
    Member,
    PendingPublication,
    Publisher,
)
from forewarn.service.engine.ledger import Ledger
from forewarn.store import Batch, Entry, MemoryStore
from forewarn.store.port import States
from forewarn.support import guard
from helpers.host_nodes import until

NOW = World(at=1_800_000_000_000_000)


class RecordingMember(Member):
    """A member that remembers what it was told, and confirms by itself, if at all, only that it
    shows nothing old any more."""

    def __init__(self, *groups: str, serving: bool = True, joined: bool = True) -> None:
        super().__init__(serving=serving, groups=groups)
        self.joined = self.whole = joined
        self.news: list[tuple[int, list[str]]] = []
        self.shown: list[int] = []
        self.hidden: set[int] = set()  # publications before which it shows nothing
        self.on_hide: Callable[[Collection[int]], None] = lambda _: None
        self.is_late = False
        self.fenced = ""
        self.on_fence: Callable[[], None] = lambda: None

    def tell(self, news: Announcement) -> None:
        for number, changes in news.changes.items():
            self.news.append((number, [change.view.name for change in changes]))

    def hide(self, numbers: Collection[int]) -> None:
        self.hidden |= set(numbers)
        self.on_hide(numbers)

    def unhide(self, numbers: Collection[int]) -> None:
        self.hidden -= set(numbers)

    def show(self, numbers: Collection[int]) -> None:
        self.shown += numbers

    def late(self, publication: PendingPublication) -> bool:
        del publication
        return self.is_late

    def fence(self, why: str) -> None:
        self.fenced = why
        self.on_fence()


class Scene:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.ledger = Ledger()
        self.absent: set[str] = set()  # groups that somebody who is not connected may be showing
        self.publisher = Publisher(self.store, self.ledger)
        self.publisher.absent = lambda groups: not self.absent.isdisjoint(groups)

    def enter(self, *groups: str, serving: bool = True, joined: bool = True) -> RecordingMember:
        member = RecordingMember(*groups, serving=serving, joined=joined)
        member.on_hide = lambda numbers: self.publisher.hidden(member, numbers)
        self.publisher.enter(member)
        return member

    def lose(self, member: RecordingMember) -> None:
        """Disconnect a member that may go on showing what it shows."""
        self.absent |= member.groups
        self.publisher.leave(member)

    async def commit(self, commands: Sequence[tuple[str, c.Command]]) -> None:
        def work(states: States) -> Batch:
            entries = []
            for name, command in commands:
                decision = decide(states[name], command, NOW)
                assert isinstance(decision, Changes)
                entries.append(Entry(name, decision.items))
            return Batch(NOW.at, 0, tuple(entries))

        await self.store.transact(work)
        await turns()

    async def define(self, *names: str) -> None:
        for name in names:
            machine = Machine(name=name, addresses=("10.0.0.1",))
            await self.commit([(name, c.Define(kind=GroupKind.STANDALONE, machines=(machine,)))])
            await self.commit([(name, c.Enable())])

    async def reboot(self, *names: str) -> None:
        await self.commit([(name, reboot(name)) for name in names])

    def is_shown(self, *groups: str) -> bool:
        """Return whether nobody would have to wait for these groups."""
        waiting = self.publisher.shown(groups)
        try:
            waiting.send(None)
        except StopIteration:
            return True
        waiting.close()
        return False


_number = iter(range(1, 10_000))


def reboot(machine: str) -> c.Raise:
    return c.Raise(id=f"E{next(_number)}", type=EventType.REBOOT, machines=(machine,), by="test")


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await guard.pause(0)


def play(body: Callable[[Scene], Awaitable[None]]) -> None:
    async def life() -> None:
        scene = Scene()
        await scene.store.open()
        tasks = guard.Tasks()
        tasks.start(scene.publisher.run(), "publisher")
        tasks.start(scene.publisher.watch(), "late")
        try:
            async with asyncio.timeout(30):
                await body(scene)
        finally:
            await tasks.end()
            await scene.store.close()

    asyncio.run(life())


def test_a_change_is_shown_when_all_members_of_the_group_have_confirmed() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        one, two = scene.enter("web"), scene.enter("web")
        await scene.reboot("web")
        ((number, names),) = one.news
        assert (names, two.news) == (["web"], one.news)
        assert scene.store.groups["web"].events  # it is decided, and the state
        scene.publisher.confirm(one, number)
        assert (one.shown, two.shown, scene.is_shown("web")) == ([], [], False)
        scene.publisher.confirm(two, number)
        assert (one.shown, two.shown, scene.is_shown("web")) == ([number], [number], True)
        await scene.ledger.idle()

    play(body)


def silent(_: Collection[int]) -> None:
    """Confirm nothing."""


def test_what_was_before_is_shown_until_all_members_have_a_change() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        one, two = scene.enter("web"), scene.enter("web")
        two.on_hide = silent
        await scene.reboot("web")
        number = one.news[0][0]
        scene.publisher.confirm(one, number)
        assert (one.hidden, two.hidden) == (set(), set())
        scene.publisher.confirm(two, number)
        assert (one.hidden, two.hidden) == ({number}, {number})
        assert not scene.is_shown("web")
        scene.publisher.hidden(two, [number])
        assert (one.shown, two.shown, scene.is_shown("web")) == ([number], [number], True)

    play(body)


def test_a_late_confirmation_does_not_cover_what_was_to_be_hidden_after_it() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web", "db")
        one, slow = scene.enter("web", "db"), scene.enter("web")
        one.on_hide = silent
        await scene.reboot("web")
        await scene.reboot("db")
        web, db = (number for number, _ in one.news)
        scene.publisher.confirm(one, db)
        assert one.hidden == {db}
        scene.publisher.confirm(slow, web)
        assert (one.hidden, slow.hidden) == ({web, db}, {web})
        scene.publisher.hidden(one, [db])
        assert (scene.is_shown("db"), scene.is_shown("web")) == (True, False)
        scene.publisher.hidden(one, [web])
        assert scene.is_shown("web")

    play(body)


def test_a_member_that_has_not_joined_or_knows_one_round_only_is_not_asked_to_hide() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        joining, old = scene.enter("web", joined=False), scene.enter("web")
        old.two_rounds = False
        await scene.reboot("web")
        number = old.news[0][0]
        scene.publisher.confirm(old, number)
        scene.publisher.confirm(joining, number)
        assert (joining.hidden, old.hidden, scene.is_shown("web")) == (set(), set(), True)

    play(body)


def test_what_was_before_is_shown_again_while_a_member_is_silent_in_the_second_round() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        one, two = scene.enter("web"), scene.enter("web")
        two.on_hide = silent
        await scene.reboot("web")
        number = one.news[0][0]
        for member in (one, two):
            scene.publisher.confirm(member, number)
        await until(lambda: not one.hidden)
        assert (two.hidden, one.shown, scene.is_shown("web")) == (set(), [], False)
        scene.publisher.confirm(two, number)  # which is no answer to what it was asked
        assert one.hidden == set()
        two.on_hide = lambda numbers: scene.publisher.hidden(two, numbers)
        scene.publisher.hidden(two, [number])  # late: everything begins anew
        assert (one.hidden, two.hidden, one.shown, two.shown) == (
            *({number}, {number}),
            *([number], [number]),
        )
        assert not two.fenced

    play(body)


def test_a_member_that_is_too_slow_for_the_second_round_twice_is_fenced() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        one, slow = scene.enter("web"), scene.enter("web")
        slow.on_hide = silent
        slow.on_fence = lambda: scene.lose(slow)
        await scene.reboot("web")
        number = one.news[0][0]
        for member in (one, slow):
            scene.publisher.confirm(member, number)
        await until(lambda: not one.hidden)
        assert not slow.fenced
        scene.publisher.hidden(slow, [number])
        assert one.hidden == {number}
        await until(lambda: not one.hidden)
        assert "in time" in slow.fenced
        assert not scene.is_shown("web")  # it may be showing what was before
        scene.absent.clear()
        scene.publisher.settle()
        assert (one.shown, scene.is_shown("web")) == ([number], True)

    play(body)


def test_what_was_before_is_shown_again_while_a_member_is_lost_in_the_second_round() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        one, lost = scene.enter("web"), scene.enter("web")
        await scene.reboot("web")
        number = one.news[0][0]
        scene.publisher.confirm(one, number)
        lost.on_hide = lambda _: scene.lose(lost)
        scene.publisher.confirm(lost, number)
        assert one.hidden == {number}
        await until(lambda: not one.hidden)
        assert one.shown == []
        scene.absent.clear()
        scene.publisher.settle()
        assert (one.hidden, one.shown, scene.is_shown("web")) == ({number}, [number], True)
        await scene.ledger.idle()

    play(body)


def test_changes_of_other_groups_do_not_wait() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web", "db")
        web, other = scene.enter("web"), scene.enter("db")
        await scene.reboot("web")
        await scene.reboot("db")
        scene.publisher.confirm(other, other.news[-1][0])
        assert other.shown == [other.news[-1][0]]
        assert (scene.is_shown("db"), scene.is_shown("web")) == (True, False)
        assert [names for _, names in web.news] == [["web"]]  # and it is told nothing else
        assert [names for _, names in other.news] == [["db"]]

    play(body)


def test_changes_during_a_publication_are_published_together_afterwards() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        member = scene.enter("web")
        await scene.reboot("web")
        first = member.news[-1][0]
        for _ in range(3):
            await scene.reboot("web")
        assert len(member.news) == 1
        scene.publisher.confirm(member, first)
        await turns()
        assert member.shown == [first]
        assert not scene.is_shown("web")
        (_, (second, names)) = member.news
        assert names == ["web"]
        scene.publisher.confirm(member, second)
        assert member.shown == [first, second]
        assert len(scene.publisher.announced["web"].events) == 4
        assert scene.is_shown("web")
        await scene.ledger.idle()

    play(body)


def test_a_confirmation_does_not_cover_what_was_announced_after_it() -> None:
    """A later commit may be announced before an earlier one whose group was busy."""

    async def body(scene: Scene) -> None:
        await scene.define("web", "db")
        member, slow = scene.enter("web", "db"), scene.enter("web")
        await scene.reboot("web")
        await scene.reboot("web")  # waits for the one before
        await scene.reboot("db")
        last = member.news[-1]
        assert last[1] == ["db"]
        scene.publisher.confirm(member, last[0])
        assert scene.is_shown("db")
        scene.publisher.confirm(slow, slow.news[-1][0])
        await turns()
        scene.publisher.confirm(slow, slow.news[-1][0])
        assert len(slow.news) == 2
        assert not scene.is_shown("web")  # the second is not confirmed by `member`
        scene.publisher.confirm(member, member.news[-1][0])
        assert scene.is_shown("web")

    play(body)


def test_what_one_commit_changes_is_shown_together() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web", "db", "api")
        web, db, api = scene.enter("web"), scene.enter("db"), scene.enter("api")
        await scene.reboot("web")
        await scene.reboot("web", "db")  # waits for web
        await scene.reboot("db", "api")  # is joined with it
        assert (len(web.news), db.news, api.news) == (1, [], [])
        scene.publisher.confirm(web, web.news[0][0])
        await turns()
        number = db.news[0][0]
        for member in (web, db, api):
            assert member.news[-1] == (number, ["web", "db", "api"])
            assert number not in member.shown
            scene.publisher.confirm(member, number)
        assert all(number in member.shown for member in (web, db, api))
        assert scene.is_shown("web", "db", "api")
        await scene.ledger.idle()

    play(body)


def test_only_members_that_get_an_update_confirm_a_commit() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web", "db")
        web, db = scene.enter("web"), scene.enter("db")
        machine = Machine(name="db", addresses=("10.0.0.1",), labels={"rack": "1"})
        relabel = c.Define(kind=GroupKind.STANDALONE, machines=(machine,))
        await scene.commit([("web", reboot("web")), ("db", relabel)])
        assert (len(web.news), db.news, len(db.unconfirmed)) == (1, [], 0)
        scene.publisher.confirm(web, web.news[0][0])
        assert scene.is_shown("web", "db")

    play(body)


def test_a_change_that_guests_cannot_notice_is_not_published() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        member = scene.enter("web")
        machine = Machine(name="web", addresses=("10.0.0.1",), labels={"rack": "1"})
        define = c.Define(kind=GroupKind.STANDALONE, machines=(machine,))
        await scene.commit([("web", define)])
        assert (member.news, scene.is_shown("web")) == ([], True)

    play(body)


def test_an_absent_member_is_waited_for_even_without_a_visible_change() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web", "db")
        scene.absent = {"web"}
        await scene.reboot("web")
        await scene.reboot("db")
        assert (scene.is_shown("web"), scene.is_shown("db")) == (False, True)
        machine = Machine(name="web", addresses=("10.0.0.1",), labels={"rack": "1"})
        scene.absent.clear()
        scene.publisher.settle()
        assert scene.is_shown("web")
        scene.absent = {"web"}
        await scene.commit(
            [("web", c.Define(kind=GroupKind.STANDALONE, machines=(machine,), force=True))]
        )
        assert not scene.is_shown("web")
        # Whoever joins now would wait for ever to be allowed to show it.
        assert scene.publisher.pending() == scene.publisher.pending(["web"]) == {}
        scene.absent.clear()
        async with asyncio.timeout(20):
            await scene.publisher.shown(["web"])  # which is looked at again and again

    play(body)


def test_a_late_member_is_fenced_and_not_waited_for() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        member = scene.enter("web")
        member.on_fence = lambda: scene.publisher.leave(member)
        await scene.reboot("web")
        member.is_late = True
        async with asyncio.timeout(20):
            await scene.publisher.shown(["web"])
        assert "in time" in member.fenced
        assert member.shown == []

    play(body)


def test_a_returning_member_may_show_the_old_state_until_it_has_confirmed() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        scene.absent = {"web"}
        await scene.reboot("web")
        back = scene.enter("web", joined=False)
        scene.absent.clear()
        scene.publisher.settle()
        assert not scene.is_shown("web")
        assert scene.publisher.pending() == {"web": scene.publisher.number}
        scene.publisher.confirm(back, scene.publisher.number, whole=True)
        assert scene.is_shown("web")
        assert back.shown == []  # it has not joined: `pending` is what it may not show yet

    play(body)


def test_a_member_that_has_caught_up_confirms_only_its_updates() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        back = scene.enter("web", joined=False)
        number = scene.publisher.number  # of what it is sent
        await scene.reboot("web")
        reported = back.news[-1][0]
        scene.publisher.confirm(back, reported)
        assert scene.is_shown("web")
        machine = Machine(name="web", addresses=("10.0.0.1",), labels={"rack": "1"})
        define = c.Define(kind=GroupKind.STANDALONE, machines=(machine,), force=True)
        await scene.commit([("web", define)])  # of which guests notice nothing
        assert len(back.news) == 1
        assert not scene.is_shown("web")  # it may still be showing what was before all this
        scene.publisher.confirm(back, number, whole=True)
        assert scene.is_shown("web")

    play(body)


def test_a_member_that_shows_nothing_yet_is_not_waited_for() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        fresh = scene.enter("web", serving=False, joined=False)
        await scene.reboot("web")
        assert len(fresh.news) == 1
        assert scene.is_shown("web")

    play(body)


def test_the_removal_of_a_group_is_published_once() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        member = scene.enter("web")

        def work(_: States) -> Batch:
            return Batch(NOW.at, 0, (), (GroupForgotten("web"),))

        await scene.store.transact(work)
        await turns()
        ((number, names),) = member.news
        assert names == ["web"]
        scene.publisher.confirm(member, number)
        assert "web" not in scene.publisher.announced
        assert scene.is_shown("web")

    play(body)


def test_a_member_that_may_have_missed_a_change_is_fenced() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web")
        member = scene.enter("web")
        member.on_fence = lambda: scene.publisher.leave(member)

        member.tell = None  # type: ignore[assignment,method-assign]
        await scene.reboot("web")
        assert "missed" in member.fenced
        assert scene.is_shown("web")
        member = scene.enter("web")
        await scene.reboot("web")
        assert len(member.news) == 1  # it goes on

    play(body)


def test_a_returning_member_does_not_confirm_earlier_changes() -> None:
    async def body(scene: Scene) -> None:
        await scene.define("web", "db")
        slow = scene.enter("web")
        await scene.reboot("web")
        ((pending, _),) = slow.news
        back = scene.enter("web", "db", joined=False)
        await scene.reboot("db")
        reported = back.news[-1][0]
        scene.publisher.confirm(back, reported)  # it may still show "web" as it was before
        scene.publisher.confirm(slow, pending)
        assert (scene.is_shown("db"), scene.is_shown("web")) == (True, False)
        scene.publisher.confirm(back, reported, whole=True)
        assert scene.is_shown("web")

    play(body)


def test_a_group_published_again_during_a_comparison_does_not_go_back() -> None:
    async def body(scene: Scene) -> None:
        names = [f"g{n}" for n in range(COMPARE_SLICE)]
        await scene.define(*names)
        member = scene.enter(*names)
        publishing = scene.publisher
        take = publishing._take_ready

        def taken() -> list[PendingPublication]:
            ready = take()
            if len(ready) == 1 and len(ready[0].groups) == COMPARE_SLICE:
                asyncio.get_running_loop().call_soon(publishing.place_again, "g0")
            return ready

        publishing._take_ready = taken  # type: ignore[method-assign]
        await scene.reboot(*names)
        for number, _ in member.news:
            publishing.confirm(member, number)
        await turns()
        assert [names for _, names in member.news][1:] == [["g0"]]
        assert publishing.announced["g0"] is scene.store.groups["g0"]

    play(body)
