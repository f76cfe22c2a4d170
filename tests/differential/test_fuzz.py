"""The fuzzer: it keeps what is new, finds what differs, and makes it small."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from differential.case import Case, kept
from differential.cases import LAST, POLL
from differential.fuzz import Found, Fuzzer
from differential.guided import smallest
from differential.histories import busy
from differential.pair import Pair
from forewarn.metadata.http import front, known_polls

END = b"\r\n\r\n"


def test_a_difference_is_minimized() -> None:
    case = Case((POLL, b"some " * 50 + b"needle" + b" more" * 50, POLL), "web_0")
    assert smallest(case, lambda less: b"needle" in less.whole) == Case((b"needle",), "web_0")
    assert smallest(case, lambda less: len(less.segments) > 1).whole == b""


def test_the_corpus_keeps_only_cases_with_new_coverage(tmp_path: Path) -> None:
    with Pair(busy) as pair:
        fuzzer = Fuzzer(pair, tmp_path, random.Random(1))
        pair.call(fuzzer.coverage.start)
        fuzzer.learn([Case((POLL,)), Case((LAST,))])
        _run(fuzzer, 10)
        pair.call(fuzzer.coverage.stop)
        found = kept(tmp_path)
        assert set(found.values()) == set(fuzzer.pool[2:])
        assert found
        assert fuzzer.thin() == len(found), "nothing of it is new to one that has seen it"
        assert kept(tmp_path) == {}


def test_the_fuzzer_finds_a_front_that_ignores_what_follows_a_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = known_polls.learn
    monkeypatch.setattr(front, "known", lambda _data: None)
    monkeypatch.setattr(front, "learn", lambda data: learn(data.partition(END)[0] + END))
    with Pair(busy) as pair:
        fuzzer = Fuzzer(pair, tmp_path, random.Random(1))
        fuzzer.learn([Case((POLL,)), Case((POLL, LAST))])
        with pytest.raises(Found, match="with a front"):
            _run(fuzzer, 1_000)


def _run(fuzzer: Fuzzer, steps: int) -> None:
    for _ in range(steps):
        fuzzer.step()
