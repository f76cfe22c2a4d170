"""Traces as files: published captures, several recorders, torn and foreign lines."""

import json
from pathlib import Path

import pytest

from forewarn.judge import RULES, Finding, judge, judge_files
from helpers.judge_traces import T0, A, Recording, event, started

CAPTURES = sorted((Path(__file__).parent / "captures").glob("*.jsonl"))


def write(path: Path, recording: Recording) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in recording.records))
    return path


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_a_published_capture_breaks_no_promise(path: Path) -> None:
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()
    assert judgement.exchanges > 0
    assert judgement.unreadable == 0


def test_the_captures_are_there() -> None:
    assert [path.stem for path in CAPTURES] == ["errors", "freeze-2023", "reboot-2018"]


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    one = write(tmp_path / "one", Recording().see(T0, 2, event()).see(T0 + 2, 2, event()))
    other = write(
        tmp_path / "other",
        Recording().see(T0 + 1, 3, started(event()), machine="web_1"),
    )
    rules = {finding.rule for finding in judge_files([other, one]).findings}
    # Both recorders count their answers alike, so the ids of the answers repeat as well.
    assert rules == {"backwards", "incarnation-down", "early-start", "request-id"}


def test_a_torn_last_line_is_counted_and_the_rest_is_judged(tmp_path: Path) -> None:
    path = write(tmp_path / "trace", Recording().see(T0, 2, event()))
    whole = path.read_bytes()
    for cut in range(0, len(whole), 5):
        path.write_bytes(whole + whole[:cut].splitlines(keepends=True)[-1] if cut else whole)
        judgement = judge_files([path])
        assert judgement.ok
        assert judgement.unreadable <= 1
        assert judgement.exchanges in (1, 2)


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"\xff\xfe\x00",
        b"[]",
        b"5",
        b"null",
        b'{"t":1}',
        b'{"kind":"exchange"}',
        b'{"kind":"exchange","t":1}',
        b'{"kind":"exchange","t":1,"status":"200","method":"GET","target":"/"}',
        b'{"kind":"exchange","t":1,"status":200,"method":"GET","target":"/","headers":[1]}',
        b'{"kind":"exchange","t":1,"status":200,"method":"GET","target":"/","headers":[["a",1]]}',
        b'{"kind":"exchange","t":1,"status":200,"method":"GET","target":"/","answer":5}',
        b'{"kind":"exchange","t":1,"status":200,"method":"GET","target":"/","answer_base64":"%"}',
        b'{"kind":"exchange","t":1e400,"status":200,"method":"GET","target":"/"}',
        b'{"kind":"exchange","t":NaN,"status":200,"method":"GET","target":"/"}',
        b'{"kind":"fleet","t":1,"machines":5}',
        b'{"kind":"fleet","t":1,"machines":{"a":{"group":"g","addresses":5}}}',
        b'{"kind":"fleet","t":1,"machines":{"a":{}}}',
        b'{"kind":"fleet","t":1,"grace":"60"}',
        b'{"kind":"impact","t":1,"event":"A","machines":"web_0"}',
        b'{"kind":"approval","t":1}',
        b'{"kind":"disabled","t":1}',
        b'{"kind":"step","t":1}',
        b'{"kind":"disconnected","t":1}',
        b'{"kind":"joined","t":1,"machines":["web_0"],"host":5}',
        b'{"kind":"without-node","t":1}',
        b'{"kind":"up","t":1,"host":"h1","clock_error":"small"}',
        b'{"kind":5,"t":1}',
        b"[" * 100_000,
    ],
)
def test_a_line_that_makes_no_sense_is_counted(tmp_path: Path, line: bytes) -> None:
    path = write(tmp_path / "trace", Recording().see(T0, 2, event()))
    path.write_bytes(line + b"\n\n" + path.read_bytes())
    judgement = judge_files([path])
    assert judgement.unreadable == 1
    assert judgement.exchanges == 1
    assert judgement.ok


def test_an_unknown_kind_is_ignored() -> None:
    assert judge([{"kind": "weather", "t": 5}, {"kind": "end", "t": 6}]).unreadable == 0


def test_a_torn_approval_may_have_counted(tmp_path: Path) -> None:
    early = Recording().see(T0, 2, event()).see(T0 + 5, 3, started(event()))
    path = write(tmp_path / "trace", early)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind":"exchange","asked":1.0,"method":"POST","bo')
    assert judge_files([path]).ok
    path.write_bytes(whole + b'{"kind":"exchange","asked":1.0,"method":"GET","ta')
    assert [finding.rule for finding in judge_files([path]).findings] == ["early-start"]


def test_bytes_that_are_no_text_are_read_from_base64() -> None:
    recording = Recording().see(T0, 2)
    recording.records[-1].update(answer_base64="/w==", answer=None)
    rules = {finding.rule for finding in judge(recording.records).findings}
    assert rules == {"not-a-document", "content-length"}


def test_an_empty_trace_is_in_order(tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(b"")
    judgement = judge_files([tmp_path / "trace"])
    assert judgement.ok
    assert judgement.render() == (
        "no promise broken (0 exchanges, 0 machines, 0 events, 0 impacts)"
    )


def test_a_judgement_reads_as_text_and_as_data() -> None:
    recording = Recording().see(T0, 2, event()).see(T0 + 1, 3, started(event())).impact(T0 + 2)
    judgement = judge([*recording.records, {"kind": "impact", "t": T0 + 3}])
    assert judgement.render().splitlines() == [
        "2 findings (2 exchanges, 1 machine, 1 event, 1 impact; 1 unreadable line)",
        "early-start: It was Started 899 s before its NotBefore, without an approval.",
        f"    at 2023-11-14T22:13:21.000Z, group web, machine web_0, event {A}",
        "impact-early: It was carried out 898 s before its NotBefore, without an approval.",
        f"    at 2023-11-14T22:13:22.000Z, machine web_0, event {A}",
    ]
    data = json.loads(json.dumps(judgement.as_dict()))
    assert data["ok"] is False
    assert data["findings"][0]["rule"] == "early-start"
    assert data["findings"][0]["event"] == A


def test_a_mistake_at_every_poll_is_one_finding() -> None:
    recording = Recording()
    for poll in range(50):
        recording.see(T0 + poll, 5, answer_headers={"Server": "nginx"})
    assert judge(recording.records).findings == (
        Finding(
            rule="server-header",
            message="Server is 'nginx', not IMDS/….",
            t=T0,
            group="web",
            machine="web_0",
            times=50,
        ),
    )


def test_rules_are_named_and_described() -> None:
    for name, description in RULES.items():
        assert name == name.lower().replace("_", "-")
        assert description.endswith((".", "…", ").")), name
