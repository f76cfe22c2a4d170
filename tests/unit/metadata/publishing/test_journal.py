"""What a node finds on its disk after it was killed, or after somebody else was there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.core import Durations, GroupKind, GroupView, Machine
from forewarn.core.fleet import Place
from forewarn.metadata.publishing import journal as journal_module
from forewarn.metadata.publishing.journal import (
    Journal,
    JournalFailed,
    JournalInUse,
    JournalMessage,
)
from forewarn.metadata.publishing.messages import (
    Changed,
    Joined,
    News,
    Publication,
    Shown,
    SnapshotEnd,
    SnapshotPart,
    Welcome,
)
from forewarn.metadata.upstream import GroupNews
from helpers.power_cut import PowerCut

VIEW = GroupView(name="web", kind=GroupKind.SCALE_SET, enabled=True, incarnation=7, events=())
MESSAGES: list[JournalMessage] = [
    Welcome(protocol=1, version="1", rules=Durations(), term=3),
    SnapshotPart((GroupNews(VIEW, (Machine(name="web_0"),), Place()),), {"web": 4}),
    SnapshotEnd(4),
    Joined((4,), 1_800_000_000_000_000),
    News((Publication(5, (Changed(VIEW),)),)),
    Shown((4, 5), 1_800_000_000_000_001),
]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path, "h1")
    made.replace(MESSAGES[:3])
    for message in MESSAGES[3:]:
        made.append(message)
    made.sync()
    yield made
    made.close()


def again(path: Path, host: str = "h1") -> list[JournalMessage]:
    journal = Journal(path.parent, host)
    try:
        return journal.read()
    finally:
        journal.close()


def test_updates_are_read_again_in_order(journal: Journal) -> None:
    assert journal.read() == MESSAGES
    journal.close()
    assert again(journal.path) == MESSAGES


def test_only_its_own_user_can_read_a_journal(journal: Journal) -> None:
    assert journal.path.stat().st_mode & 0o077 == 0


def test_a_new_journal_is_empty(tmp_path: Path) -> None:
    assert again(tmp_path / "journal") == []


def test_a_truncated_journal_is_used_up_to_its_last_complete_entry(journal: Journal) -> None:
    content = journal.path.read_bytes()
    journal.close()
    found = set()
    for length in range(len(content)):
        journal.path.write_bytes(content[:length])
        reported = again(journal.path)
        assert reported == MESSAGES[: len(reported)]
        found.add(len(reported))
    assert found == set(range(len(MESSAGES)))


def test_a_damaged_journal_is_not_used(journal: Journal) -> None:
    content = journal.path.read_bytes()
    journal.close()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0xFF
        journal.path.write_bytes(bytes(damaged))
        assert again(journal.path) == []


def test_a_file_that_had_grown_before_anything_was_written_is_used(journal: Journal) -> None:
    content = journal.path.read_bytes()
    journal.close()
    journal.path.write_bytes(content + bytes(100))
    assert again(journal.path) == MESSAGES


@pytest.mark.parametrize("content", [b"\0", b"garbage" * 100, b"\0\0\0\1\0\0\0\0x"])
def test_garbage_is_not_used(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal").write_bytes(content)
    assert again(tmp_path / "journal") == []


def test_the_journal_of_another_host_is_not_used(journal: Journal) -> None:
    journal.close()
    assert again(journal.path, "h2") == []


def test_a_journal_has_one_node(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(JournalInUse, match="another node"):
        Journal(tmp_path, "h1")
    journal.close()
    Journal(tmp_path, "h1").close()


def test_a_journal_is_long_when_it_has_doubled(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not journal.long
    monkeypatch.setattr(journal_module, "LEAST_GROWTH", 100)
    for _ in range(50):
        journal.append(MESSAGES[-1])
    assert journal.long
    journal.replace(MESSAGES)
    assert not journal.long
    assert journal.read() == MESSAGES


def test_a_journal_that_was_replaced_survives_a_loss_of_power(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    power_cut = PowerCut(monkeypatch)
    journal.replace(MESSAGES)
    assert power_cut.left(journal.path) == journal.path.read_bytes()
    journal.append(MESSAGES[-1])
    journal.sync()
    assert power_cut.left(journal.path) == journal.path.read_bytes()


def test_a_full_disk_is_reported_and_the_journal_is_kept(journal: Journal) -> None:
    new = journal.path.with_suffix(".new")
    new.symlink_to("/dev/full")
    with pytest.raises(JournalFailed, match=f"{journal.path}: {os.strerror(errno.ENOSPC)}"):
        journal.replace(MESSAGES[:3])
    assert not new.is_symlink()  # what was written of it is gone
    assert journal.read() == MESSAGES
    os.close(journal._file or 0)
    journal._file = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(JournalFailed, match=os.strerror(errno.ENOSPC)):
        journal.append(MESSAGES[-1])
    journal.replace(MESSAGES)
    assert journal.read() == MESSAGES


def test_a_journal_on_a_read_only_disk_is_read(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def open_read_only(path: Path, flags: int, mode: int = 0o777, **place: int | None) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, mode, **place)

    journal.close()
    monkeypatch.setattr(os, "open", open_read_only)
    again = Journal(journal.path.parent, "h1")
    try:
        assert again.read() == MESSAGES
        with pytest.raises(JournalFailed, match="Read-only file system"):
            again.replace(MESSAGES)
    finally:
        again.close()
