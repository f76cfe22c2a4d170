"""Recording an endpoint: what is asked, what is written down, and what is left out."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from forewarn.judge import judge
from forewarn.testing import FaultKind, Service
from forewarn.testing.recording import read
from forewarn.testing.recording import recorder as recording
from forewarn.testing.recording.endpoint import BadUrl, Endpoint
from forewarn.testing.recording.file import RecordingFile, RecordingFileError
from forewarn.testing.recording.live_text import LiveText
from forewarn.testing.recording.recorder import Ending, Recorder
from forewarn.testing.scenarios import parse, scenario_text
from forewarn.wire.server_clock import ServerClock
from forewarn.wire.times import rfc1123

Line = Mapping[str, Any]


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(sockets=True) as service:
        service.scale_set("web", 3)
        yield service


class Tape(list[Line]):
    @property
    def exchanges(self) -> list[Line]:
        return [line for line in self if line["kind"] == "exchange"]


def recorder(url: str, tape: Tape, **more: Any) -> Recorder:
    made = Recorder(Endpoint(url), tape.append, **more)
    made.begin()
    return made


@contextmanager
def answering(
    *answers: bytes | Callable[[socket.socket], None],
) -> Iterator[tuple[str, list[bytes]]]:
    """A server that says these things, one for each connection, whatever it is asked."""
    asked: list[bytes] = []

    def serve() -> None:
        for answer in answers:
            with listening.accept()[0] as connection:
                asked.append(connection.recv(65536))
                if callable(answer):
                    answer(connection)
                else:
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        thread.join(5)


def http_answer(body: bytes, second: int = 1_700_000_000) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nDate: {rfc1123(second)}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_changed_documents_are_written_and_others_once_a_minute(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape()
    made = recorder(service.url("web_0"), tape)
    assert made.machine == "web_0"
    for _ in range(5):
        made.poll()
    assert len(tape.exchanges) == 1
    service.schedule("Freeze", "web_1")
    made.poll()
    # The last of those that were left out says until when it was as before.
    assert [line.get("same", 0) for line in tape.exchanges] == [0, 3, 0]
    monkeypatch.setattr(recording, "HEARTBEAT", 0.0)
    made.poll()
    assert len(tape.exchanges) == 4
    made.end()
    assert [tape[0]["kind"], tape[-1]["kind"]] == ["partial", "end"]
    assert all(line["machine"] == "web_0" for line in tape.exchanges)
    everything = Tape()
    made = recorder(service.url("web_0"), everything, everything=True)
    for _ in range(5):
        made.poll()
    assert len(everything.exchanges) == 5


def test_times_are_those_of_the_services_clock(service: Service) -> None:
    tape = Tape()
    made = recorder(service.url("web_0"), tape, everything=True)
    made.poll()
    service.clock.advance("15m")
    made.poll()
    now = service.clock.now.timestamp()
    first, second = (line["t"] for line in tape.exchanges)
    assert abs(second - now) < 1.1
    assert abs(second - first - 900) < 2
    steps = [line for line in tape if line["kind"] == "step"]
    assert len(steps) == 1
    assert abs(steps[0]["seconds"] - 900) < 2


def test_every_answer_narrows_the_offset_of_the_clock() -> None:
    ticking = ServerClock(offset=1000.0)
    assert ticking.learn(None, 5.0, 5.1) == 0.0
    assert ticking.learn("nonsense", 5.0, 5.1) == 0.0
    assert ticking.learn(rfc1123(1005), 5.0, 5.1) == 0.0  # it is ours
    assert ticking.offset == 1000.0
    ticking = ServerClock()
    assert ticking.learn(rfc1123(1005), 5.0, 5.1) == 0.0  # what it is, and no step
    low = ticking.offset
    assert 999.9 <= low <= 1001
    ticking.learn(rfc1123(1006), 5.2, 5.3)
    assert 1000.7 <= ticking.offset <= 1001
    assert ticking.learn(rfc1123(1900), 6.0, 6.1) == pytest.approx(893, abs=1.1)
    assert ticking.learn(rfc1123(1000), 7.0, 7.1) == pytest.approx(-901, abs=1.1)


FAULTS: dict[FaultKind, tuple[int | None, str | None]] = {
    "throttled": (429, None),
    "gone": (410, None),
    "error": (500, None),
    "empty": (200, None),
    "no-events": (200, None),
    "plain": (200, None),
    "control-characters": (200, None),
    "truncated": (None, "cut"),
    "stalled": (None, "stalled"),
    "reset": (None, "reset"),
    "incarnation": (200, None),
}


def test_every_fault_is_recorded_and_replayed(service: Service) -> None:
    tape = Tape()
    made = recorder(service.url("web_0"), tape, timeout=2.0)
    service.schedule("Reboot", "web_1", description="Host server is undergoing maintenance.")
    made.poll()
    for kind, (status, trouble) in FAULTS.items():
        service.faults.add(kind, machine="web_0", times=2)
        for _ in range(2):
            made.poll()
            assert (tape[-1]["status"], tape[-1].get("trouble")) == (status, trouble), kind
        made.poll()
        assert json.loads(tape.exchanges[-1]["answer"])["Events"]
    made.end()
    scenario = parse(scenario_text(tape))
    met = [(step.entry.kind, step.entry.times) for step in scenario.steps if step.verb == "fault"]
    disconnected = [("incarnation", 1)]  # twice number 1 is the same document
    assert met == [(kind, 2) for kind in FAULTS if kind != "incarnation"] + disconnected
    assert [step.entry.type for step in scenario.steps if step.verb == "schedule"] == ["Reboot"]


def test_a_slow_answer_is_recorded_and_replayed(service: Service) -> None:
    lines = [
        {"kind": "exchange", "t": 130.0, "asked": 10.0, "machine": "web_0", "method": "GET"}
        | {"target": "/metadata/scheduledevents?api-version=2020-07-01", "status": 200}
        | {"answer": '{"DocumentIncarnation":1,"Events":[]}'}
    ]
    fault = parse(scenario_text(lines)).steps[0]
    assert (fault.entry.kind, fault.entry.seconds, fault.entry.times) == ("slow", 120.0, 1)


def test_an_honest_service_is_accused_of_nothing(service: Service) -> None:
    tape = Tape()
    made = recorder(service.url("web_0"), tape)
    event = service.schedule("Freeze", "web_1", duration=5)
    made.poll()
    service.clock.advance("3m")
    made.poll()
    event.approve()  # which the recorder cannot know
    made.poll()
    service.clock.advance("1h")
    gone = service.schedule("Reboot", "web_0")
    made.poll()
    gone.cancel()
    made.poll()
    made.end()
    judgement = judge(tape)
    assert judgement.ok, judgement.render()
    assert judgement.events == 2
    # As if nobody else could have approved.
    believed = judge([line for line in tape if line["kind"] != "partial"])
    assert [finding.rule for finding in believed.findings] == ["early-start"]
    steps = parse(scenario_text(tape)).steps
    assert [step.verb for step in steps] == ["schedule", "approve", "schedule", "cancel"]


def test_a_service_that_goes_backwards_is_accused() -> None:
    event = '{"EventId":"FE88BA46-96D4-432E-8AED-89A0F0E52D99","EventStatus":"%s"'
    event += ',"EventType":"Freeze","ResourceType":"VirtualMachine","Resources":["a"]'
    event += ',"NotBefore":"%s","Description":"","EventSource":"Platform","DurationInSeconds":5}'
    shown = [event % ("Started", ""), event % ("Scheduled", rfc1123(1_700_009_000))]
    answers = [
        http_answer(b'{"DocumentIncarnation":%d,"Events":[%s]}' % (number, one.encode()))
        for number, one in enumerate(shown, 2)
    ]
    tape = Tape()
    with answering(*answers) as (url, _):
        made = recorder(url, tape, machine="a")
        made.poll()
        made.poll()
    assert "backwards" in {finding.rule for finding in judge(tape).findings}


def test_a_redirect_is_not_followed_and_nothing_is_ever_approved() -> None:
    away = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    tape = Tape()
    with answering(away, away) as (url, asked):
        made = recorder(url, tape)
        made.poll()
    assert made.machine is None
    assert tape[-1]["status"] == 302
    assert [request.split(b" ")[0] for request in asked] == [b"GET", b"GET"]
    assert all(b"\r\nMetadata: true\r\n" in request for request in asked)


def test_an_answer_that_trickles_is_given_up_in_time() -> None:
    gone_on = threading.Event()

    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            while not gone_on.wait(0.01):
                connection.sendall(b" ")
        except OSError:
            pass

    with answering(trickle) as (url, _):
        answer = Endpoint(url).get("/", 0.2)
        gone_on.set()
    assert (answer.status, answer.failure) == (None, "stalled")
    assert answer.received_at - answer.sent_at >= 0.2


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (b"", "reset"),
        (b"\x16\x03\x01 what is this\r\n\r\n", "not-http"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"Ev", "cut"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", "cut"),
    ],
)  # fmt: skip
def test_an_invalid_answer_is_recorded_as_a_failure(answer: bytes, trouble: str) -> None:
    with answering(answer) as (url, _):
        brought = Endpoint(url).get("/", 5.0)
    assert (brought.status, brought.failure) == (None, trouble)


def test_a_refused_connection_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    answer = Endpoint(f"127.0.0.1:{port}").get("/", 1.0)
    assert (answer.status, answer.failure) == (None, "refused")
    [change] = LiveText().changes(answer)
    assert "refused" in change


@pytest.mark.parametrize("url", ["https://x", "ftp://x", "http://", "http://u:p@x", "http://x:y"])
def test_an_invalid_endpoint_is_refused(url: str) -> None:
    with pytest.raises(BadUrl):
        Endpoint(url)


def test_live_text_describes_changes_of_documents(service: Service) -> None:
    live_text, tape = LiveText(), Tape()
    made = recorder(service.url("web_0"), tape)
    assert live_text.changes(made.poll()) == ["document 1, no events"]
    event = service.schedule("Freeze", "web_1")
    due = f"not before {rfc1123(int(event.not_before.timestamp()))}"
    name = f"Freeze {event.id[:8]} of web_1"
    assert live_text.changes(made.poll()) == [f"{name} is Scheduled, {due}"]
    assert live_text.changes(made.poll()) == []
    service.faults.add("gone", times=2)
    assert live_text.changes(made.poll()) == ["status 410 instead of a document"]
    assert live_text.changes(made.poll()) == []
    event.cancel()
    assert live_text.changes(made.poll()) == [
        "the endpoint returns documents again",
        f"{name} is gone",
    ]


def test_a_recording_ends_when_no_events_are_left(service: Service) -> None:
    made, ending = recorder(service.url("web_0"), Tape()), Ending(when_quiet=True)
    made.poll()
    assert not ending.reached(made, 0.0)
    event = service.schedule("Freeze", "web_1")
    made.poll()
    assert not ending.reached(made, 0.0)
    event.cancel()
    made.poll()
    assert ending.reached(made, 0.0)


# The file.


def test_a_torn_last_line_is_removed_and_the_recording_continued(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RecordingFile(path) as keeping:
        assert not keeping.appending
        keeping.write({"kind": "partial", "t": 1.0})
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("ab") as file:
        file.write(b'{"kind":"exchange","t":2.0,"answer":"' + b"x" * 200_000)
    with RecordingFile(path) as keeping:
        assert keeping.appending
        keeping.write({"kind": "end", "t": 3.0})
    assert [line["kind"] for line in read([path]).lines] == ["partial", "end"]
    assert read([path]).unreadable == 0


def test_a_continued_recording_has_later_times(service: Service) -> None:
    """Though the clock stands still, and is only known to a second."""
    tape = Tape()
    for _ in range(4):
        last = tape[-1]["t"] if tape else None
        made = Recorder(Endpoint(service.url("web_0")), tape.append, after=last)
        made.begin()
        made.poll()
        service.restart("web_0")
    times = [line["t"] for line in tape]
    assert times == sorted(set(times))


def test_a_file_that_is_no_recording_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my only copy")
    with pytest.raises(RecordingFileError, match="not a recording"):
        RecordingFile(path)
    assert path.read_text() == "my only copy"


def test_two_recorders_cannot_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with (
        RecordingFile(path),
        pytest.raises(RecordingFileError, match="another process"),
    ):
        RecordingFile(path)


def test_a_full_disk_is_reported() -> None:
    with (
        RecordingFile(Path("/dev/full")) as keeping,
        pytest.raises(RecordingFileError, match="No space"),
    ):
        keeping.write({"kind": "end", "t": 1.0})
