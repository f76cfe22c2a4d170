"""A copy of a running service, and a service that finds a copy where its state was."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec
import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.client.connection import ServiceAddress
from forewarn.control.http.errors import on_store_failed
from forewarn.control.schema.core import BACKUP_HEADER
from forewarn.core import Event, EventType, Refused, Status
from forewarn.core.access import Role
from forewarn.core.history import RecordKind
from forewarn.core.renumbering import DOCUMENTS_LEAST, DOCUMENTS_PER_SECOND
from forewarn.core.rollouts.selection import Selection
from forewarn.core.time import DAY, MINUTE
from forewarn.drivers.port import (
    Again,
    Checked,
    Done,
    Driver,
    Happened,
    NotYet,
    Observed,
    Ok,
    Performed,
    Task,
    Unknown,
)
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.store.port import Copy, StoreUnreadable
from forewarn.store.port import HistoryQuery as Records
from forewarn.store.sql.schema import SCHEMA_VERSION
from forewarn.support.instants import to_datetime
from forewarn.testing import SAMPLE, Service
from helpers.forked_cli import Forked
from helpers.next_version import BETWEEN, NEXT, THIS, migrate
from helpers.next_version import COMMAND as NEXT_VERSION
from helpers.times import START
from helpers.token_api import api_with_token
from helpers.waiting import LIMIT, until

FOREWARN = [sys.executable, "-m", "forewarn"]


def typed(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(SAMPLE, sockets=True, state=tmp_path / "state.db") as service:
        yield service


# Making one.


def test_a_running_service_is_copied_through_its_api(service: Service, tmp_path: Path) -> None:
    service.get("web_0")
    service.schedule("Reboot", "web_0")
    backup = tmp_path / "backup.db"
    done = typed("backup", backup, "--url", service.control_url)
    assert done.exit_code == 0, done.output
    assert "last commit    3\n" in done.output
    assert "machines       11\n" in done.output
    assert "active events  1\n" in done.output
    assert backup.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM machines").fetchone() == (11,)
    assert {file.name for file in tmp_path.iterdir()} == {
        "backup.db",
        *(f"state.db{part}" for part in ("", "-wal", "-shm", ".lock", ".impacts")),
    }


def test_an_existing_file_is_replaced_only_with_force(service: Service, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    backup.write_text("precious")
    for more in ([], ["--state", tmp_path / "state.db"]):
        where = more or ["--url", service.control_url]
        done = typed("backup", backup, *where)
        assert (done.exit_code, backup.read_text()) == (1, "precious")
        assert "pass --force" in done.output
    done = typed("backup", backup, "--url", service.control_url, "--force", "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed["file"] == str(backup)
    assert printed["bytes"] == backup.stat().st_size
    assert printed["contents"]["machines"] == 11
    assert printed["contents"]["schema"] == SCHEMA_VERSION


def test_a_backup_path_above_the_root_is_the_root(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself opens no path with more ".." than the working directory is deep."""
    monkeypatch.chdir(tmp_path)
    above = Path(*[".."] * (len(tmp_path.parts) + 3), *tmp_path.parts[1:])
    for name, source in (
        ("asked.db", ("--url", service.control_url)),
        ("copied.db", ("--state", above / "state.db")),
    ):
        done = typed("backup", above / name, *source)
        assert done.exit_code == 0, done.output
        assert (tmp_path / name).is_file()


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    long = tmp_path / ("a" * 300)
    new = tmp_path / "new.db"
    for words in (
        ("backup", long),
        ("backup", new, "--state", long),
        ("restore", long, "--state", tmp_path / "state.db"),
    ):
        done = typed(*words)
        assert done.exit_code == 1
        assert isinstance(done.exception, SystemExit), done.exception
        assert "name too long" in done.output
    done = typed("restore", tmp_path / "none.db", "--state", long)
    assert isinstance(done.exception, SystemExit), done.exception


def test_a_state_file_is_copied_with_its_service_and_without(
    service: Service, tmp_path: Path
) -> None:
    service.schedule("Reboot", "web_0")
    done = typed("backup", tmp_path / "beside.db", "--state", tmp_path / "state.db", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["contents"]["active_events"] == 1
    copy = tmp_path / "alone" / "state.db"
    copy.parent.mkdir()
    shutil.copy(tmp_path / "beside.db", copy)
    done = typed("backup", tmp_path / "again.db", "--state", copy)
    assert done.exit_code == 0, done.output
    assert [file.name for file in copy.parent.iterdir()] == ["state.db"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("backup", "{d}"), "is a directory"),
        (("backup", "{d}/no/b"), "No such file"),
        (("backup", "{d}/b", "--state", "{d}/none.db"), "none.db is not "),
        (("backup", "{d}/b", "--state", "{d}/text"), "text cannot be used"),
        (("backup", "{d}/b", "--url", "http://127.0.0.1:1"), "http://127.0.0.1:1"),
        (("restore", "{d}/none", "--state", "{d}/s"), "none is not "),
        (("restore", "{d}/text", "--state", "{d}/s"), "not an SQLite database"),
    ],
)
def test_an_impossible_backup_or_restore_is_refused_in_one_line(
    tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "text").write_text("no database")
    done = typed(*(word.format(d=tmp_path) for word in words))
    assert done.exit_code == 1
    assert says in done.output
    assert done.output.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["text"]


def test_a_service_without_a_state_file_has_nothing_to_copy(tmp_path: Path) -> None:
    with Service(SAMPLE, sockets=True) as service:
        done = typed("backup", tmp_path / "b", "--url", service.control_url)
    assert done.exit_code == 1
    assert "state in memory" in done.output


class Breaking(http.server.BaseHTTPRequestHandler):
    """Says how much will come, and sends less."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.send_header(BACKUP_HEADER, "{}")
        self.end_headers()
        self.wfile.write(b"SQLite format 3\x00" * 100)

    def log_message(self, *_: object) -> None:
        pass


def test_a_download_that_breaks_off_leaves_no_file(tmp_path: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Breaking) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            done = typed("backup", tmp_path / "b", "--url", url)
        finally:
            server.shutdown()
            thread.join()
    assert done.exit_code == 1
    assert "98,400 bytes" in done.output
    assert not list(tmp_path.iterdir())


def test_leftovers_of_a_killed_backup_are_removed_by_the_next(
    service: Service, tmp_path: Path
) -> None:
    backup = tmp_path / "backups" / "b.db"
    backup.parent.mkdir()

    def left() -> list[Path]:
        return list(backup.parent.glob(".b.db-*"))

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = Forked([*FOREWARN, "backup", str(backup), "--url", url])
        try:
            connection, _ = silent.accept()  # it has its place by now, and waits
            (place,) = left()
            done = typed("backup", backup, "--url", service.control_url)
            assert done.exit_code == 0, done.output
            assert left() == [place]  # that one is at work
        finally:
            command.kill()
            command.wait()
        connection.close()
    (place / "copy").write_bytes(b"half")
    other = backup.parent / ".b.db-my-own"
    other.mkdir()
    done = typed("backup", backup, "--url", service.control_url, "--force")
    assert done.exit_code == 0, done.output
    assert left() == [other]


def test_a_state_that_cannot_be_read_is_not_reported_as_a_failed_write(
    service: Service, tmp_path: Path
) -> None:
    state, away = tmp_path / "state.db", tmp_path / "away.db"
    state.rename(away)
    state.write_bytes(away.read_bytes())
    done = typed("backup", tmp_path / "b", "--url", service.control_url)
    away.replace(state)
    assert done.exit_code == 1
    assert f": {state}: " in done.output
    assert "stored" not in done.output
    other = on_store_failed(None, StoreUnreadable("state.db: disk I/O error"))
    assert other.status_code == 503
    assert other.content.detail.endswith(": state.db: disk I/O error")


def test_one_copy_is_made_at_a_time(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it takes of the disk and the processor is bounded."""
    from forewarn.store.sqlite import copy as copying

    begun, go_on = threading.Event(), threading.Event()
    real = copying.copy_to_stream

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(LIMIT)
        return real(*arguments)

    monkeypatch.setattr(copying, "copy_to_stream", slow)
    client = ControlClient(service.control_url)
    first: list[bytes] = []
    thread = threading.Thread(target=lambda: client.backup(first.append))
    thread.start()
    assert begun.wait(LIMIT)
    with pytest.raises(ControlError, match="another backup"):
        client.backup(first.append)
    go_on.set()
    thread.join()
    assert b"".join(first).startswith(b"SQLite format 3")


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> list[IO[bytes]]:
    """Copies are larger than what a kernel takes for somebody who does not read; all of them."""
    from forewarn.store.sqlite import copy as copying

    made: list[IO[bytes]] = []
    real = copying.copy_to_stream

    def enlarged(*arguments: Any) -> Copy:
        copy = real(*arguments)
        os.truncate(f"/proc/self/fd/{copy.file.fileno()}", LARGE)
        made.append(copy.file)
        return msgspec.structs.replace(copy, size=LARGE)

    monkeypatch.setattr(copying, "copy_to_stream", enlarged)
    return made


LARGE = 64 * 1024 * 1024  # bytes, of a file that has holes


def asked_for_a_copy(service: Service) -> socket.socket:
    """Somebody who asks and takes the first bytes only."""
    url = urlsplit(service.control_url)
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.settimeout(60)
    reader.connect((url.hostname, url.port))
    reader.sendall(f"GET /v1/backup HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
    assert reader.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
    return reader


def copied_at_last(service: Service) -> int:
    """How much, as soon as it is nobody else's turn."""
    client, size = ControlClient(service.control_url), 0

    def count(block: bytes) -> None:
        nonlocal size
        size += len(block)

    def copied() -> bool:
        try:
            client.backup(count)
        except ControlError as error:
            if "another backup" in str(error):
                return False
            raise
        return True

    until(copied)
    return size


def test_the_next_copy_is_made_when_the_last_was_taken(
    service: Service, large: list[IO[bytes]]
) -> None:
    """Each lies on the state's disk until then, where nobody sees it."""
    with asked_for_a_copy(service):
        with pytest.raises(ControlError, match="another backup"):
            ControlClient(service.control_url).backup(lambda _: None)
        assert [file.closed for file in large] == [False]
    assert copied_at_last(service) == LARGE  # whoever hangs up has no more use for it
    assert [file.closed for file in large] == [True, True]
    ControlClient(service.control_url).backup(lambda _: None)  # at once, for whoever has all of it


def test_a_download_that_stalls_is_closed(
    service: Service, large: list[IO[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forewarn.control.routes.backup.BACKUP_TAKEN_WITHIN", 0.5)
    with asked_for_a_copy(service) as reader:
        assert copied_at_last(service) == LARGE
        assert large[0].closed
        taken = 12
        while block := reader.recv(1024 * 1024):
            taken += len(block)
        assert taken < LARGE


# Going back to one.


class Life:
    """A service that is copied, lives on, and is given the copy as its state."""

    def __init__(self, directory: Path, **more: Any) -> None:
        self.directory, self.more = directory, more
        self.state, self.backup = directory / "state.db", directory / "backup.db"

    def serving(self, start: int = START) -> Service:
        at = to_datetime(start)
        return Service(SAMPLE, sockets=True, state=self.state, start=at, **self.more)

    def copy(self, service: Service) -> None:
        client = ControlClient(service.control_url)
        with self.backup.open("xb") as file:
            client.backup(file.write)

    def restore(self) -> None:
        done = typed("restore", self.backup, "--state", self.state, "--force")
        assert done.exit_code == 0, done.output
        assert "not known" in done.output

    def impacts(self) -> list[str]:
        lines = (self.directory / "state.db.impacts").read_text().splitlines()
        return [json.loads(line)["event"] for line in lines]


def at(service: Service) -> int:
    return service._session.node.writer.now().at


def record_of(service: Service, what: RecordKind) -> list[Any]:
    return list(
        service._session.run(service._session.node.store.history(Records(what=(what,), limit=100)))
    )


def test_a_restore_reports_the_new_and_the_previous_state(tmp_path: Path) -> None:
    life = Life(tmp_path)
    with life.serving() as service:
        service.schedule("Reboot", "web_0")
        life.copy(service)
    done = typed("restore", life.backup, "--state", tmp_path / "other.db", "--json")
    printed = json.loads(done.stdout)
    assert (printed["file"], printed["kept"]) == (str(tmp_path / "other.db"), None)
    done = typed("restore", life.backup, "--state", life.state, "--json")
    assert done.exit_code == 1
    assert "exists; pass --force" in done.output
    done = typed("restore", life.backup, "--state", life.state, "--json", "--force")
    printed = json.loads(done.stdout)
    assert printed["kept"] == f"{life.state}.before-restore"
    assert printed["contents"]["active_events"] == 1


def test_a_restore_notes_whether_the_copy_has_tokens(tmp_path: Path) -> None:
    life = Life(tmp_path)
    with life.serving() as service:
        life.copy(service)
        done = typed("restore", life.backup, "--state", tmp_path / "open.db")
        assert "\ntokens         0\n" in done.stdout
        assert "has no tokens" in done.stderr
        life.backup.unlink()
        api_with_token(service, "root", Role.ADMIN)
        token = api_with_token(service, "copier", Role.ADMIN).token
        with life.backup.open("xb") as file:
            ControlClient(ServiceAddress(service.control_url, token)).backup(file.write)
    done = typed("restore", life.backup, "--state", tmp_path / "closed.db")
    assert "\ntokens         2\n" in done.stdout
    assert "has no tokens" not in done.stderr
    assert "note: tokens " in done.stderr


def test_document_numbers_are_not_reused_after_a_restore(tmp_path: Path) -> None:
    life = Life(tmp_path)
    with life.serving() as service:
        service.get("web_0")
        service.schedule("Reboot", "web_0", notice="1d")
        life.copy(service)
        shown = {}
        for _ in range(3):
            service.schedule("Freeze", "web_0", notice="2d")
            document = service.document("web_0")
            shown[document["DocumentIncarnation"]] = document["Events"]
        service.clock.advance("1h")
        ended = at(service)
    life.restore()
    with life.serving(ended) as service:
        document = service.document("web_0")
        assert [event["EventType"] for event in document["Events"]] == ["Reboot"]
        beyond = DOCUMENTS_LEAST + DOCUMENTS_PER_SECOND * 3600
        assert document["DocumentIncarnation"] == 2 + beyond > max(shown)
        service.schedule("Freeze", "web_0", notice="2d")
        assert service.document("web_0")["DocumentIncarnation"] == 3 + beyond
        later = at(service)
    with life.serving(later) as service:  # it is a state like any other by now
        assert service.document("web_0")["DocumentIncarnation"] == 3 + beyond
        (record,) = record_of(service, RecordKind.STATE_RESTORED)
        assert "with commit 3" in record.note
    life.restore()  # of the same copy, later: other numbers again
    with life.serving(later + 5_000_000) as service:
        assert service.document("web_0")["DocumentIncarnation"] > 3 + beyond


def test_followers_of_the_feed_learn_of_a_restore(tmp_path: Path) -> None:
    life = Life(tmp_path)
    with life.serving() as service:
        service.get("web_0")
        life.copy(service)
        known = service._session.node.store.seq
        for _ in range(4):
            service.schedule("Freeze", "web_0", notice="2d")
    life.restore()
    with life.serving() as service:
        client = ControlClient(service.control_url)
        service.schedule("Reboot", "web_0", notice="2d")
        with pytest.raises(ControlError, match=f"{known + 2}"):
            client.changes(after=str(known + 2))
        page = client.changes(after=str(known))  # who was no further misses nothing
        assert page.commits[0].seq > known + 1_000_000
        with pytest.raises(ControlError):
            client.changes(after=str(known + 2))  # whoever has asked before


def test_events_carried_out_after_the_backup_are_not_repeated(tmp_path: Path) -> None:
    life = Life(tmp_path)
    with life.serving() as service:
        service.get("web_0")
        event = service.schedule("Reboot", "web_0")
        life.copy(service)
        service.clock.advance("40m")
        assert life.impacts() == [event.id]
        ended = at(service)
    life.restore()
    with life.serving(ended) as service:
        service.clock.advance("59s")  # an outage has ended: nothing starts by its NotBefore
        assert service.document("web_0")["Events"][0]["EventStatus"] == "Scheduled"
        service.clock.advance("30m")
        assert service.document("web_0")["Events"] == []
    assert life.impacts() == [event.id]


def waiting_behind_another(life: Life) -> tuple[Event, int]:
    """An event that was approved and waited when the copy was made, and was cancelled then. The
    copy is the state now, and it is so late that the one it waited for is over."""
    with life.serving() as service:
        service.get("web_0")
        service.approve("web_0", service.schedule("Reboot", "web_0"))
        event = service.schedule("Freeze", "web_1")._record
        service.approve("web_0", event)
        service.schedule("Freeze", "jumpbox", notice="2d")
        life.copy(service)
        service._session.run(service._session.node.platform.cancel(event.id, "operator"))
        service.clock.advance("40m")
        ended = at(service)
    assert event.id not in life.impacts()
    life.restore()
    return event, ended


def held_by(service: Service, event: Event) -> list[str]:
    explained = service._session.run(service._session.node.platform.explain(event.id))
    assert not isinstance(explained, Refused)
    return [hold.kind.value for hold in explained.holds]


def test_events_cancelled_after_the_backup_can_be_cancelled_again(tmp_path: Path) -> None:
    life = Life(tmp_path)
    event, ended = waiting_behind_another(life)
    with life.serving(ended) as service:
        service.clock.advance("59s")
        assert held_by(service, event) == ["restored"]
        service._session.run(service._session.node.platform.cancel(event.id, "operator"))
        service.clock.advance("1h")
    assert event.id not in life.impacts()


def test_restored_events_start_after_the_grace(tmp_path: Path) -> None:
    life = Life(tmp_path)
    event, ended = waiting_behind_another(life)
    with life.serving(ended) as service:
        service.clock.advance("59s")
        ended = at(service)
    with life.serving(ended) as service:  # nobody has had all of it yet: it begins anew
        service.clock.advance("59s")
        assert held_by(service, event) == ["restored"]
        assert event.id not in life.impacts()
        service.clock.advance("1s")
        assert event.id in life.impacts()
        ended = at(service)
    with life.serving(ended) as service:  # somebody has had it by now
        (other,) = service._session.node.store.groups["jumpbox"].events
        assert held_by(service, other) == ["notice", "grace"]


class Blind(Driver):
    """Carries out, and cannot tell afterwards, unless somebody lets it know."""

    repeatable = False

    def __init__(self) -> None:
        self.performed: list[str] = []
        self.observed: list[str] = []
        self.knows: Observed = Unknown("nobody has written it down")
        self.answers: Performed = Done()

    async def check(self, task: Task) -> Checked:
        return Ok()

    async def observe(self, task: Task) -> Observed:
        self.observed.append(task.event)
        return self.knows

    async def perform(self, task: Task) -> Performed:
        self.performed.append(task.event)
        return self.answers


def restored_with(life: Life, driver: Blind) -> Event:
    """An approved Reboot that was carried out after the copy; the copy is the state now."""
    with life.serving() as service:
        service.get("web_0")
        event = service.schedule("Reboot", "web_0")._record
        life.copy(service)
        service.approve("web_0", event)
        assert driver.performed == [event.id]
    life.restore()
    return event


def test_a_restored_event_of_unknown_outcome_waits_for_an_operator(tmp_path: Path) -> None:
    driver = Blind()
    life = Life(tmp_path, driver=driver)
    event = restored_with(life, driver)
    with life.serving() as service:
        service.approve("web_0", event)
        service.clock.advance("1m")  # what a copy tells of waits for the grace, approved or not
        assert driver.performed == [event.id]  # the once
        held = service._session.run(service._session.node.platform.event(event.id))
        assert isinstance(held, Event)
        assert held.attempt is not None
        assert held.attempt.stuck
        assert "from a copy" in held.attempt.note
        driver.answers = Again(START + 2 * MINUTE)
        service._session.run(
            service._session.node.platform.retry(event.id, "operator")
        )  # it did not happen
        service._session.settle()
        assert driver.performed == [event.id] * 2
        driver.answers = Done()
        service.clock.advance("3m")  # that was said once, for all that follows from it
        assert driver.performed == [event.id] * 3
        assert service.document("web_0")["Events"] == []
        # What is raised from here on is as ever.
        service.clock.advance("1s")
        service.approve("web_0", service.schedule("Freeze", "web_0"))
        assert len(driver.performed) == 4


def test_an_event_that_has_happened_is_finished_without_being_carried_out(tmp_path: Path) -> None:
    driver = Blind()
    life = Life(tmp_path, driver=driver)
    event = restored_with(life, driver)
    driver.knows = Happened()
    with life.serving() as service:
        service.approve("web_0", event)
        service.clock.advance("1m")  # what a copy tells of waits for the grace, approved or not
        assert service.document("web_0")["Events"] == []
    assert driver.performed == [event.id]


def test_an_event_that_has_not_happened_is_carried_out_however_long_it_takes(
    tmp_path: Path,
) -> None:
    driver = Blind()
    life = Life(tmp_path, driver=driver)
    event = restored_with(life, driver)
    driver.knows, driver.answers = NotYet(), Again(START + 2 * MINUTE)
    with life.serving() as service:
        service.approve("web_0", event)
        service.clock.advance("1m")  # what a copy tells of waits for the grace, approved or not
        assert driver.performed == [event.id] * 2
        driver.answers = Done()
        service.clock.advance("3m")
        assert service.document("web_0")["Events"] == []
    assert driver.performed == [event.id] * 3


def test_a_crash_right_after_the_restore_forgets_none_of_it(tmp_path: Path) -> None:
    """That the state is restored is on record, not in somebody's memory."""
    driver = Blind()
    life = Life(tmp_path, driver=driver)
    event = restored_with(life, driver)
    with life.serving():
        pass
    with life.serving() as service:
        service.approve("web_0", event)
        service.clock.advance("1m")  # what a copy tells of waits for the grace, approved or not
    assert driver.performed == [event.id]


def test_rollouts_wait_for_an_operator(tmp_path: Path) -> None:
    life = Life(tmp_path)
    wanted = RolloutRequest(type=EventType.REBOOT, selection=Selection(groups=("web",)), by="test")
    with life.serving() as service:
        service.get("web_0")
        report = service._session.run(service._session.node.rollouts.start(wanted))
        assert not isinstance(report, Refused)
        id = report.rollout.id
        life.copy(service)
        service.clock.advance("3h")
        assert set(life.impacts())
        ended = at(service)
    before = life.impacts()
    life.restore()
    with life.serving(ended) as service:
        paused = service._session.node.store.registry.rollouts[id].paused
        assert paused is not None
        assert (paused.by, "from a copy" in paused.why) == ("restore", True)
        service.clock.advance("3h")
        # What had been announced goes on, and was carried out already; nothing more is announced.
        assert life.impacts() == before
        service._session.run(service._session.node.rollouts.resume(id, "operator"))
        service.clock.advance("6h")
        assert service._session.node.store.registry.rollouts[id].ended_at is not None


def test_time_since_the_copy_counts_as_an_outage(tmp_path: Path) -> None:
    life = Life(tmp_path, silence="24h")
    with life.serving() as service:
        service.get("web_0")
        life.copy(service)
    life.restore()
    with life.serving(START + 7 * DAY) as service:
        assert service._session.node.store.groups["web"].enabled  # nobody could have asked
        service.clock.advance("23h")
        assert service._session.node.store.groups["web"].enabled
        service.clock.advance("2h")
        assert not service._session.node.store.groups["web"].enabled


def test_a_backup_that_was_only_copied_into_place_is_noticed_as_well(tmp_path: Path) -> None:
    life = Life(tmp_path)
    with life.serving() as service:
        service.get("web_0")
        life.copy(service)
    shutil.copy(life.backup, life.state)
    with life.serving() as service:
        assert service.document("web_0")["DocumentIncarnation"] > DOCUMENTS_LEAST
        assert record_of(service, RecordKind.STATE_RESTORED)


# Older ones, with real processes.


def sample_state(directory: Path) -> Path:
    """A state file of this version's schema, alone in its directory."""
    state = directory / "state.db"
    with tempfile.TemporaryDirectory() as scratch:
        with Service(SAMPLE, state=Path(scratch) / "state.db"):
            pass
        shutil.copyfile(Path(scratch) / "state.db", state)
    return state


class Process:
    def __init__(self, directory: Path, *words: object, next_version: bool = False) -> None:
        command = NEXT_VERSION if next_version else FOREWARN
        start: Callable[..., subprocess.Popen[str]] = subprocess.Popen if next_version else Forked
        self.process = start(
            [*command, *map(str, words), "--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(directory)},
        )

    def urls(self) -> dict[str, str]:
        assert self.process.stdout is not None
        ready, _, rest = self.process.stdout.readline().partition(" ")
        assert ready == "ready", self.end()
        found: dict[str, str] = json.loads(rest)
        return found

    def end(self) -> tuple[int, str]:
        self.process.terminate()
        _, printed = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, printed

    def ended(self) -> tuple[int, str]:
        """By itself."""
        _, printed = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, printed


def test_serve_upgrades_only_on_request(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = sample_state(tmp_path)
    before = state.read_bytes()
    status, printed = Process(tmp_path, "serve", "--state", state, next_version=True).ended()
    assert status == 1
    assert printed.startswith(f"forewarn: {state} has schema {THIS}, this version has {NEXT}: ")
    assert "forewarn upgrade --state" in printed
    assert printed.count("\n") == 1
    assert state.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["state.db"]
    done = typed("backup", tmp_path / "backup.db", "--state", state)  # as it says
    assert done.exit_code == 0, done.output
    service = Process(tmp_path, "serve", "--state", state, "--migrate", next_version=True)
    assert ControlClient(service.urls()["control"]).status().machines == 11
    status, printed = service.end()
    assert status == 0
    kept = tmp_path / f"state.db.schema-{THIS}"
    assert str(kept) in printed
    # This version refuses the upgraded state, and leaves it alone.
    before = state.read_bytes()
    status, printed = Process(tmp_path, "serve", "--state", state).ended()
    assert status == 1
    assert f"{state} has schema {NEXT}, " in printed
    assert state.read_bytes() == before
    # What was kept can be restored like any other copy: by the next version, and by this one.
    request.getfixturevalue("next_version")
    done = typed("restore", kept, "--state", state, "--force")
    assert done.exit_code == 0, done.output
    assert f"its schema is {THIS}: upgrade it" in done.output
    monkeypatch.undo()
    done = typed("restore", kept, "--state", state, "--force")
    assert done.exit_code == 0, done.output
    assert "upgrade it" not in done.output


def test_dev_upgrades_by_itself(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    state = sample_state(tmp_path)
    request.getfixturevalue("next_version")
    migrate(state, BETWEEN)
    service = Process(tmp_path, "dev", "--state", state, next_version=True)
    assert ControlClient(service.urls()["control"]).status().machines
    assert service.end()[0] == 0
    assert (tmp_path / f"state.db.schema-{BETWEEN}").exists()


def test_nothing_is_restored_under_a_running_process(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    service = Process(tmp_path, "serve", "--state", state)
    urls = service.urls()
    done = typed("backup", tmp_path / "b", "--url", urls["control"])
    assert done.exit_code == 0, done.output
    done = typed("restore", tmp_path / "b", "--state", state, "--force")
    assert done.exit_code == 1
    assert f"process {service.process.pid}" in done.output
    assert service.end()[0] == 0
    assert typed("restore", tmp_path / "b", "--state", state, "--force").exit_code == 0


def test_an_event_from_a_copy_is_still_the_same_event(tmp_path: Path) -> None:
    life = Life(tmp_path)
    with life.serving() as service:
        service.get("web_0")
        event = service.schedule("Reboot", "web_0")
        life.copy(service)
    life.restore()
    with life.serving() as service:
        assert service.document("web_0")["Events"][0]["EventId"] == event.id
        assert service.approve("web_0", event).status == 200
        service.clock.advance("1m")
        found = service._session.run(service._session.node.platform.event(event.id))
        assert isinstance(found, Event)
        assert found.status is Status.STARTED
