"""Several processes that look like one service, whichever of them dies."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.judge import judge
from helpers.paths import ROOT
from helpers.polls import until
from helpers.raw_http import ConnectionClosed, RawConnection
from helpers.worker_processes import (
    LAST_POLL,
    NEVER_LONGER,
    MultiProcessService,
    Pollers,
    multi_process_service,
    source,
)

IS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MultiProcessService]:
    with multi_process_service(tmp_path_factory.mktemp("several")) as running:
        for n in range(12):
            assert running.document(n)["Events"] == []
        yield running


def test_a_machine_always_meets_the_same_worker(service: MultiProcessService) -> None:
    met = {n: {service.answered_by(n) for _ in range(4)} for n in range(12)}
    assert all(len(ids) == 1 for ids in met.values())
    assert len(set.union(*met.values())) == 2


def test_the_next_poll_of_whoever_approved_shows_it_and_everybody_elses_too(
    service: MultiProcessService,
) -> None:
    for n in (0, 5, 7):
        id = service.schedule(f"web_{n}")
        others = [service.document(m)["Events"] for m in range(12)]
        assert all(events == others[0] for events in others)
        assert service.approve(id, n) == 200
        for m in (n, *range(12)):
            (event,) = (e for e in service.document(m)["Events"] if e["EventId"] == id)
            assert event["EventStatus"] == "Started"
        service.ask("POST", f"/v1/events/{id}/finish", {"reason": "test"})
        assert all(service.document(m)["Events"] == [] for m in range(12))


def test_the_numbers_are_those_of_all_workers_together(service: MultiProcessService) -> None:
    polls = 'forewarn_polls_total{api_version="2020-07-01",status="200"}'
    service.wait_for_workers()

    def counted() -> float:
        return service.metrics().get(polls, 0)

    before = counted()
    for n in range(12):
        service.poll(n)
    until(lambda: counted() >= before + 12, 20)
    until(lambda: service.ask("GET", "/v1/machines/web_3")["polls"] > 0, 20)


def test_polls_go_on_while_control_is_killed_and_approvals_are_refused_until_it_is_back(
    service: MultiProcessService,
) -> None:
    id = service.schedule("web_1")
    expected = service.poll(0).body

    def refused() -> bool:
        try:
            return service.approve(id) == 500
        except (
            ConnectionClosed
        ):  # it was under way when control died, and nobody knows what became of it
            return False

    with Pollers(service.place, range(12)) as crowd:
        crowd.seen()
        os.kill(service.pid, signal.SIGSTOP)  # so that control stays away for a while
        try:
            killed = service.kill("control")
            until(refused)
            crowd.seen(200)
            assert service.approve(id) == 500
        finally:
            os.kill(service.pid, signal.SIGCONT)
        service.wait_for_another("control", killed)
        service.wait_for_workers()
        crowd.seen()
        crowd.leave()
    assert crowd.wrong == []
    assert crowd.bodies == {expected}
    assert service.approve(id) == 200
    assert service.document(0)["Events"][0]["EventStatus"] == "Started"
    assert "the control process is not available" in service.said_so_far()
    service.ask("POST", f"/v1/events/{id}/finish", {"reason": "test"})


def test_a_worker_that_is_killed_is_replaced_and_nobody_is_refused(
    service: MultiProcessService,
) -> None:
    by = {n: service.answered_by(n) for n in range(12)}
    with Pollers(service.place, range(12)) as crowd:
        crowd.seen()
        killed = service.kill("worker 1")
        service.wait_for_another("worker 1", killed)
        service.wait_for_workers()
        crowd.seen(100)
        crowd.leave()
    assert crowd.went["refused"] == crowd.went["hung"] == 0, crowd.wrong
    assert len(crowd.wrong) <= 12, crowd.wrong  # what it was answering when it died is cut
    after = {n: service.answered_by(n) for n in range(12)}
    assert {n for n in by if by[n] == after[n]} != set()
    assert {n for n in by if by[n] != after[n]} != set()
    assert len(set(after.values())) == 2


def test_a_worker_that_stands_still_is_replaced_and_shows_nobody_what_was_before(
    service: MultiProcessService,
) -> None:
    id = service.schedule("web_2")
    before = {n: service.answered_by(n) for n in range(12)}
    incarnation = service.document(0)["DocumentIncarnation"]
    stopped = service.children()["worker 1"]
    os.kill(stopped, signal.SIGSTOP)
    waiting = {n: RawConnection(service.place, source=source(n)) for n in range(12)}
    for line in waiting.values():
        line.send(LAST_POLL)
    answered = _first(waiting)
    quick = {n for n in before if before[n] == before[answered]}  # meet the other worker
    assert 0 < len(quick) < 12
    assert service.approve(id, min(quick)) == 200  # by now nobody shows what was before
    with contextlib.suppress(ProcessLookupError):
        os.kill(stopped, signal.SIGCONT)
    service.wait_for_another("worker 1", stopped)
    service.wait_for_workers()
    assert all(service.document(n)["DocumentIncarnation"] > incarnation for n in range(12))
    assert {n for n in before if service.answered_by(n) == before[n]} == quick
    for n in waiting.keys() - quick:  # answered by another, or cut; never with what was before
        with contextlib.suppress(ConnectionClosed, OSError):
            assert waiting[n].answer().json()["DocumentIncarnation"] > incarnation
    for line in waiting.values():
        line.close()
    assert "a worker is cut off" in service.said_so_far()
    service.ask("POST", f"/v1/events/{id}/finish", {"reason": "test"})


def _first(waiting: dict[int, RawConnection]) -> int:
    """Who is answered first."""
    answered, _, _ = select.select([line._socket for line in waiting.values()], [], [], 30)
    return next(n for n, line in waiting.items() if line._socket in answered)


def test_the_documented_numbers_of_workers_are_those_there_are(
    service: MultiProcessService,
) -> None:
    text = (ROOT / "docs" / "operate" / "monitoring.md").read_text()
    documented = set(re.findall(r"^\| `(forewarn_workers?_?[a-z_]*)", text, re.M))
    there = {name.partition("{")[0] for name in service.metrics()}
    there = {re.sub("_(bucket|sum|count)$", "", name) for name in there}
    assert documented == {name for name in there if name.startswith("forewarn_worker")}
    assert service.metrics()["forewarn_workers_expected"] == 2


def test_settings_are_read_anew_by_all_and_whoever_is_started_later_goes_by_them(
    service: MultiProcessService,
) -> None:
    def throttled(n: int) -> bool:
        return 429 in {service.poll(n).status for _ in range(20)}

    assert not throttled(0)
    service.write({**service.said, "throttle": 3})
    os.kill(service.pid, signal.SIGHUP)
    try:
        until(lambda: all(throttled(n) for n in range(12)), 20)
        service.write({**service.said, "throttle": "wrong"})
        killed = service.kill("worker 0")
        service.wait_for_another("worker 0", killed)
        service.wait_for_workers()
        assert all(throttled(n) for n in range(12))
    finally:
        service.write(service.said)
        os.kill(service.pid, signal.SIGHUP)
    until(lambda: not any(throttled(n) for n in range(12)), 20)


def test_the_socket_between_them_is_for_our_own_user_only(service: MultiProcessService) -> None:
    path = service.directory / "state.db.upstream"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    if not IS_ROOT:
        pytest.skip("needs root, to be somebody else")
    script = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX)\n"
        "os.setuid(65534); s.connect(sys.argv[1]); s.settimeout(20); print(s.recv(1))"
    )
    argv = [sys.executable, "-c", script, str(path)]
    refused = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert "PermissionError" in refused.stderr
    directories = [path, *path.parents]
    modes = {d: stat.S_IMODE(d.stat().st_mode) for d in directories if d.stat().st_uid == 0}
    try:
        for directory, mode in modes.items():
            directory.chmod(mode | (0o666 if directory is path else 0o111))
        cut = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    finally:
        for directory, mode in modes.items():
            directory.chmod(mode)
    assert cut.stdout.strip() == "b''" or "ConnectionReset" in cut.stderr
    until(lambda: "a process of another user was refused" in service.said_so_far())
    service.wait_for_workers()


def test_a_second_service_is_refused(service: MultiProcessService, tmp_path: Path) -> None:
    other = MultiProcessService(tmp_path, metadata=service.metadata.removeprefix("http://"))
    assert other.start().wait() == 1
    assert "is in use" in other.said_so_far()
    other = MultiProcessService(
        tmp_path, state=str(service.directory / "state.db"), upstream="elsewhere"
    )
    assert other.start().wait() == 1
    assert "state.db" in other.said_so_far()
    assert not (tmp_path / "elsewhere").exists()
    assert service.document(0)["Events"] == []


def test_commands_find_the_service(service: MultiProcessService) -> None:
    argv = [sys.executable, "-m", "forewarn", "machine", "list", "--json"]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(service.directory)}
    said = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=30)
    assert '"web_3"' in said.stdout, said.stderr
    assert source(3) in said.stdout


def test_when_it_stops_whoever_is_in_line_is_answered_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    """A worker that stands still does not accept: its callers wait with the kernel."""
    with multi_process_service(tmp_path) as service:
        service.document(0)
        children = service.children()
        workers = [pid for name, pid in children.items() if name != "control"]
        assert len(workers) == 2
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        lines = [RawConnection(service.place, source=source(n)) for n in range(12)]
        for line in lines:
            line.send(LAST_POLL)
        os.kill(service.pid, signal.SIGTERM)
        until(lambda: "control" not in service.children(), NEVER_LONGER)
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        for line in lines:
            with line:
                assert line.answer().status == 200
        assert service.running is not None
        assert service.running.wait(NEVER_LONGER) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in children.values())
    assert not (tmp_path / "state.db.upstream").exists()
    assert list((tmp_path / "forewarn").iterdir()) == []


def test_a_supervisor_that_is_killed_takes_the_others_with_it(tmp_path: Path) -> None:
    with multi_process_service(tmp_path) as service:
        processes = service.children().values()
        service.document(0)
        os.kill(service.pid, signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes), 20)
    with multi_process_service(tmp_path) as service:
        assert service.document(0)["Events"] == []


def test_a_start_that_fails_fails_as_a_whole_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"this is no database, and long enough to see it" * 50)
    service = MultiProcessService(tmp_path)
    assert service.start().wait(60) == 1
    said = service.said_so_far()
    assert "state.db" in said
    assert "Traceback" not in said
    assert not (tmp_path / "state.db.upstream").exists()


def test_what_workers_record_can_be_judged(tmp_path: Path) -> None:
    record = tmp_path / "trace.jsonl"
    with multi_process_service(tmp_path, record=str(record)) as service:
        for n in range(12):
            service.document(n)
        id = service.schedule("web_2", "Freeze")
        with Pollers(service.place, range(12)) as crowd:
            crowd.seen(50)
            assert service.approve(id, 7) == 200
            killed = service.kill("control")
            service.wait_for_another("control", killed)
            service.wait_for_workers()
            service.ask("POST", f"/v1/events/{id}/finish", {"reason": "test"})
            crowd.seen(50)
            crowd.leave()
        assert crowd.wrong == []
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    asked = {line["machine"] for line in lines if line["kind"] == "exchange"}
    assert asked == {f"web_{n}" for n in range(12)}
    assert [line["kind"] for line in lines].count("up") == 2
    judgement = judge(lines)
    assert judgement.ok, judgement.render()
    assert judgement.exchanges > 100
