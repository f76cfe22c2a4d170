"""What a node shows before it may show a change: the old document, and then nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
import pytest

from forewarn.core import GroupKind, GroupView, Machine
from forewarn.core.fleet import Place
from forewarn.metadata.publishing.messages import Changed
from forewarn.metadata.publishing.staged_views import StagedViews, _without_document
from forewarn.metadata.upstream import GroupNews
from forewarn.support import guard
from forewarn.support.message_stream import BrokenConnection


def news(name: str, incarnation: int, machines: Iterable[str] = ("m",)) -> GroupNews:
    view = GroupView(
        name=name, kind=GroupKind.SCALE_SET, enabled=True, incarnation=incarnation, events=()
    )
    return GroupNews(view, tuple(Machine(name=machine) for machine in machines), Place())


def changed(group: GroupNews) -> Changed:
    return Changed(group.view)


class ShownGroups:
    """A sink: what guests of each group are shown, None while they have to wait."""

    def __init__(self, stage: StagedViews) -> None:
        self.of: dict[str, GroupNews] = {}
        stage.attach(self.take)

    def take(self, news: GroupNews) -> None:
        self.of[news.view.name] = news

    def shown(self, group: str) -> int | None:
        view = self.of[group].view
        return view.incarnation if view.enabled else None


async def opened(*groups: GroupNews) -> tuple[StagedViews, ShownGroups]:
    stage = StagedViews()
    reported = ShownGroups(stage)
    stage.begin()
    stage.add_snapshot(groups, {})
    stage.end_snapshot()
    assert reported.of == {}
    await stage.show_all(())
    return stage, reported


def test_a_change_is_shown_only_when_all_have_confirmed_it() -> None:
    async def life() -> None:
        stage, reported = await opened(news("web", 1), news("db", 1))
        stage.stage(2, [changed(news("web", 2))])
        assert (reported.shown("web"), reported.shown("db")) == (None, 1)
        waiting = stage.changing("web")
        assert waiting is not None
        assert not waiting.is_set()
        await stage.show([1])
        assert reported.shown("web") is None
        await stage.show([2])
        assert reported.shown("web") == 2
        assert waiting.is_set()
        assert stage.changing("web") is None

    asyncio.run(life())


def test_the_old_document_is_shown_until_it_is_hidden_and_again_if_that_is_undone() -> None:
    async def life() -> None:
        stage, reported = await opened(news("web", 1), news("db", 1))
        stage.stage(2, [changed(news("web", 2))], hide=False)
        stage.stage(3, [changed(news("db", 2))], hide=False)
        assert (reported.shown("web"), stage.changing("web")) == (1, None)
        assert stage.show_hidden(guard.monotonic()) == 0
        await stage.hide([2])
        waiting = stage.changing("web")
        assert waiting is not None
        assert (reported.shown("web"), reported.shown("db")) == (None, 1)
        stage.unhide([2])
        assert waiting.is_set()
        assert (reported.shown("web"), stage.changing("web")) == (1, None)
        await stage.hide([2, 3])
        waiting = stage.changing("web")
        assert waiting is not None
        assert not waiting.is_set()
        await stage.show([2, 3])
        assert (reported.shown("web"), reported.shown("db")) == (2, 2)
        assert waiting.is_set()

    asyncio.run(life())


def test_machines_stay_until_the_change_is_shown_that_takes_them_away() -> None:
    async def life() -> None:
        stage, reported = await opened(news("web", 1, ("a", "b")), news("db", 1))
        shrunk, new = news("web", 2, ("a",)), news("new", 1)
        removed = Changed(news("db", 1).view, (), Place(), removed=True)
        added = Changed(new.view, new.machines, new.place)
        stage.stage(2, [Changed(shrunk.view, shrunk.machines), removed, added], hide=False)
        assert [machine.name for machine in reported.of["web"].machines] == ["a", "b"]
        await stage.hide([2])
        assert [machine.name for machine in reported.of["web"].machines] == ["a", "b"]
        assert (reported.shown("web"), reported.shown("db")) == (None, None)
        assert "new" not in reported.of
        stage.unhide([2])
        assert (reported.shown("web"), reported.shown("db")) == (1, 1)
        await stage.hide([2])
        await stage.show([2])
        assert [machine.name for machine in reported.of["web"].machines] == ["a"]
        assert (reported.of["db"].machines, reported.shown("new")) == ((), 1)

    asyncio.run(life())


def test_a_change_of_a_hidden_group_stays_hidden() -> None:
    async def life() -> None:
        stage, reported = await opened(news("web", 1))
        stage.stage(2, [changed(news("web", 2))])
        stage.stage(3, [changed(news("web", 3))], hide=False)
        assert reported.shown("web") is None

    asyncio.run(life())


def test_the_first_of_two_changes_is_not_shown_alone() -> None:
    async def life() -> None:
        stage, reported = await opened(news("web", 1))
        stage.stage(2, [changed(news("web", 2))])
        stage.stage(3, [changed(news("web", 3))])
        await stage.show([2])
        assert reported.shown("web") is None
        await stage.show([3])
        assert reported.shown("web") == 3

    asyncio.run(life())


def test_unchanged_groups_are_not_held_back_by_a_new_transfer() -> None:
    async def life() -> None:
        stage, reported = await opened(news("web", 1), news("db", 1), news("old", 1))
        stage.begin()
        stage.add_snapshot([news("web", 1), news("db", 4)], {})
        assert (reported.shown("web"), reported.shown("db"), reported.shown("old")) == (1, None, 1)
        stage.end_snapshot()
        assert reported.shown("old") is None
        await stage.show_all(())
        assert (reported.shown("web"), reported.shown("db")) == (1, 4)
        assert reported.of["old"].machines == ()  # it is no more: whoever asks is unknown

    asyncio.run(life())


def test_an_update_is_not_undone_by_an_older_read() -> None:
    async def life() -> None:
        stage, reported = await opened(news("web", 1))
        stage.begin()
        whole = news("web", 7)
        stage.stage(7, [Changed(whole.view, whole.machines, whole.place)])
        stage.add_snapshot([news("web", 6)], {})
        stage.end_snapshot()
        await stage.show_all(())
        assert reported.shown("web") == 7

    asyncio.run(life())


def test_changes_in_flight_when_control_died_are_settled_by_the_next_one() -> None:
    async def life() -> None:
        stage, reported = await opened(news("web", 1))
        stage.stage(2, [changed(news("web", 2))])
        stage.begin()
        stage.add_snapshot([news("web", 2)], {})
        stage.end_snapshot()
        assert reported.shown("web") is None
        await stage.show_all(())
        assert reported.shown("web") == 2

    asyncio.run(life())


def test_a_held_change_can_be_shown_without_confirmation() -> None:
    async def life() -> None:
        stage, reported = await opened(news("web", 1))
        stage.stage(2, [changed(news("web", 2))])
        assert reported.shown("web") is None
        assert stage.show_hidden(guard.monotonic()) == 1
        assert reported.shown("web") == 2

    asyncio.run(life())


def test_the_latest_update_is_held_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def life() -> None:
        now = [100.0]
        monkeypatch.setattr(guard, "monotonic", lambda: now[0])
        stage, reported = await opened(news("web", 1), news("db", 1))
        stage.stage(2, [changed(news("web", 2)), changed(news("db", 2))])
        now[0] = 105.0
        stage.stage(3, [changed(news("web", 3))])
        assert stage.show_hidden(101.0) == 1
        assert (reported.shown("web"), reported.shown("db")) == (None, 2)
        assert stage.show_hidden(105.0) == 1
        assert reported.shown("web") == 3

    asyncio.run(life())


def test_machines_that_stay_are_the_same_ones() -> None:
    """Seats are made anew only if the machines are others."""

    async def life() -> None:
        stage, reported = await opened(news("web", 1, ("a", "b")))
        before = reported.of["web"].machines
        stage.begin()
        stage.add_snapshot([news("web", 2, ("a", "b"))], {})
        stage.end_snapshot()
        await stage.show_all(())
        assert reported.of["web"].machines is before

    asyncio.run(life())


def test_machines_come_and_go_without_anybody_waiting_while_the_document_is_the_same() -> None:
    async def life() -> None:
        stage, reported = await opened(news("web", 1, ("a",)))
        grown = news("web", 1, ("a", "b"))
        stage.stage(2, [Changed(grown.view, grown.machines)])
        assert [m.name for m in reported.of["web"].machines] == ["a", "b"]
        assert reported.shown("web") == 1
        other = news("web", 2, ("a", "b", "c"))
        stage.stage(3, [Changed(other.view, other.machines)])
        assert [m.name for m in reported.of["web"].machines] == ["a", "b", "c"]
        assert reported.shown("web") is None
        stage.stage(4, [Changed(other.view, ())])
        await stage.show([4])
        assert reported.of["web"].machines == ()

    asyncio.run(life())


def test_an_update_of_an_unknown_group_must_be_complete() -> None:
    async def life() -> None:
        stage, _ = await opened(news("web", 1))
        with pytest.raises(BrokenConnection, match="not sent before"):
            stage.stage(2, [changed(news("other", 1))])

    asyncio.run(life())


def test_equal_groups_are_equal_after_serialization() -> None:
    """The line is msgpack; what comes out must compare equal, or all would be held back."""
    group = news("web", 3, ("a", "b"))
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(group), type=GroupNews)
    assert again == group


def test_a_group_that_is_about_to_change_when_a_node_begins_is_known_though_not_shown() -> None:
    """Its machines are there: they wait, and are not told that nobody knows them."""

    async def life() -> None:
        stage = StagedViews()
        reported = ShownGroups(stage)
        stage.begin()
        web = news("web", 2, ("a",))
        stage.stage(2, [Changed(web.view, web.machines, web.place)])
        stage.add_snapshot([news("db", 1), news("api", 4)], {"api": 3})
        stage.end_snapshot()
        await stage.show_all((2, 3))
        assert reported.shown("api") is None
        assert reported.shown("db") == 1
        assert reported.shown("web") is None
        assert [machine.name for machine in reported.of["web"].machines] == ["a"]
        await stage.show([2])
        assert reported.shown("web") == 2

    asyncio.run(life())


def test_a_group_that_is_removed_before_it_was_shown_has_no_machines() -> None:
    async def life() -> None:
        stage, reported = await opened(news("db", 1))
        new = news("web", 2, ("a",))
        stage.stage(2, [Changed(new.view, new.machines, new.place)])
        assert [machine.name for machine in reported.of["web"].machines] == ["a"]
        stage.stage(3, [Changed(new.view, (), Place(), removed=True)])
        await stage.show([3])
        assert reported.of["web"].machines == ()

    asyncio.run(life())


def test_a_view_without_a_document_is_never_taken_for_one() -> None:
    """What a held group shows must not look like an enabled group without events."""
    assert not _without_document(news("web", 4).view).enabled
