"""Recordings in files: each says in its first line which promises it breaks, if any."""

import json
from pathlib import Path

import pytest

from forewarn.judge import judge_files

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.jsonl"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_breaks_exactly_the_promises_it_names(path: Path) -> None:
    with path.open() as lines:
        expected = json.loads(next(lines))
    assert expected["kind"] == "expect", "the first line says what has to be found"
    judgement = judge_files([path])
    found = sorted({finding.rule for finding in judgement.findings})
    assert found == expected["rules"], f"{expected['why']}\n{judgement.render()}"
    assert judgement.unreadable == 0
    assert judgement.exchanges > 0


def test_about_half_of_the_recordings_break_nothing() -> None:
    good = [path for path in RECORDINGS if path.stem.startswith("good-")]
    assert len(RECORDINGS) >= 90
    assert len(RECORDINGS) / 3 < len(good) < 2 * len(RECORDINGS) / 3
