"""The history of a running service: who did what, asked for, exported, kept and forgotten."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.control.client import client as control_client
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.routes import history as history_routes
from forewarn.core import Event, EventType, Group, Refused, apply
from forewarn.core import commands as c
from forewarn.core.access import Role, Token
from forewarn.core.fleet import Enrollment, Host, OverWhen, Policy
from forewarn.core.halts import Halt
from forewarn.core.history import HistoryWriter, Record, RecordKind
from forewarn.core.registry import (
    PLACED,
    ConfigurationPut,
    ConfigurationRemoved,
    HaltPut,
    HaltReleased,
    HostPut,
    HostRemoved,
    RolloutPut,
    StateRestored,
    TokenPut,
)
from forewarn.core.rollouts.model import Lane, Rollout, Step, prefix
from forewarn.core.time import DAY, MINUTE, SECOND
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.node.settings import Settings, SettingsError, config
from forewarn.service.engine.writer import CommitPlan
from forewarn.service.upkeep import history as service_history
from forewarn.store.port import HistoryQuery
from forewarn.support import guard
from forewarn.support.instants import to_datetime
from forewarn.testing import SAMPLE, Service
from helpers.reachable_hosts import cut_off
from helpers.times import START
from helpers.waiting import until

FLEET = """
hosts: [rack-1, rack-2, rack-3]
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, update_domain: 0, host: rack-1}
      - {name: web_1, update_domain: 1, host: rack-2}
      - {name: web_2, update_domain: 0, host: rack-1, spot: true}
  - name: jump
    kind: standalone
    machines:
      - {name: jump, host: rack-3}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Service]:
    """One with its state in a file."""
    with Service(FLEET, sockets=True, state=tmp_path / "state.db") as service:
        yield service


def records(service: Service, **wanted: Any) -> list[Record]:
    found = service._session.run(
        service._session.node.store.history(HistoryQuery(**{"limit": 10_000, **wanted}))
    )
    return list(found)


def story(service: Service, **wanted: Any) -> list[tuple[str, str]]:
    return [(record.what.value, record.by) for record in records(service, **wanted)]


def save(service: Service) -> None:
    """As the service does now and then."""
    service._session.run(service._session.node.poll_index.save(service._session.node.writer.now()))


def submit(service: Service, group: str, command: c.Command) -> None:
    service._session.run(service._session.node.writer.submit(group, command))
    service._session.settle()


def put(service: Service, *puts: Any) -> None:
    service._session.run(service._session.node.writer.commit(CommitPlan(puts=puts)))
    service._session.settle()


def run(service: Service, *words: str) -> Result:
    return CliRunner().invoke(app, ["history", *words, "--url", service.control_url])


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def a_life(service: Service) -> Event:
    """A Reboot of web_0 from its announcement to its end, approved by web_1."""
    service.get("web_1")
    event = service.schedule("Reboot", "web_0")._record
    service.get("web_1")
    service.clock.advance("1m")
    service.get("web_0")
    service.approve("web_1", event)
    service.clock.advance("20m")
    save(service)
    return event


def test_the_records_of_an_event_name_who_did_each_thing(service: Service) -> None:
    event = a_life(service)
    assert story(service, event=event.id) == [
        ("raised", "test"),
        ("seen", "web_1"),
        ("approved", "web_1"),
        ("started", "web_1"),
        ("answered", "driver"),
        ("attempted", ""),
        ("finished", "driver"),
    ]
    first = records(service, event=event.id, what=(RecordKind.SEEN,))[0]
    assert first.at == START  # not when it was saved, nor when web_0 saw it too


def test_who_was_warned_is_known_as_long_as_the_history_is_kept(tmp_path: Path) -> None:
    with Service(FLEET, state=tmp_path / "state.db") as before:
        before.get("web_1")
        event = before.schedule("Reboot", "web_0", "web_2")
        before.clock.advance("1m")
        before.get("web_0")
        before.approve("web_1", event)
        before.clock.advance("1m")
        before.get("web_2")  # it has started
        before.clock.advance("20m")
    since = to_datetime(START + MINUTE)
    with Service(FLEET, sockets=True, state=tmp_path / "state.db") as service:
        client = ControlClient(service.control_url)
        found = client.event(event.id)
        (started,) = client.last_records({"event": event.id, "what": "started"}, 9)
        explained = client.explain(event.id)
        assert found.status == "Finished"
        assert found.seen_by == {"web_0": since, "web_2": to_datetime(START + 2 * MINUTE)}
        assert found.not_warned == ["web_2"]
        assert started.shown == {"web_0": since, "web_2": None}
        assert explained.seen_by == found.seen_by
        table = run(service, "--event", event.id, "--what", "started")
        assert "not shown before to web_2" in table.output
        words = ["event", "show", event.id, "--url", service.control_url]
        shown = CliRunner().invoke(app, words).output
        assert re.search(r"not warned +web_2\n", shown)


def test_who_will_be_warned_is_not_known_before_the_start(service: Service) -> None:
    service.get("web_1")
    event = service.schedule("Reboot", "web_0")
    found = ControlClient(service.control_url).event(event.id)
    assert found.not_warned is None
    assert found.seen_by == {}


def test_each_kind_of_record_comes_about_once_in_a_real_service(stored: Service) -> None:
    service = stored
    node = service._session.node
    a_life(service)
    # Not listening when it is announced; says it is ready; cancelled.
    waiting = service.schedule("Reboot", "jump")
    service.get("jump")
    submit(service, "jump", c.Prepare(id=waiting.id, machine="jump"))
    later = waiting._record.not_before + SECOND
    submit(service, "jump", c.Postpone(id=waiting.id, by="test", group="jump", not_before=later))
    service.cancel(waiting)
    # A failure; an eviction, undone; a redeploy that settles what was planned for the old host.
    struck = c.Fail(id="S", type=EventType.REBOOT, machines=("jump",), by="test")
    submit(service, "jump", struck)
    submit(service, "web", c.Evict(id="E", machine="web_2", by="test"))
    service.clock.advance("30m")
    submit(service, "web", c.Restore(machine="web_2", by="test"))
    service.schedule("Freeze", "web_0", notice="2d")
    redeploy = service.redeploy("web_0")
    service.approve("web_0", redeploy)
    service.clock.advance("30m")
    service.disable("web")
    # What the inventory may say.
    group = node.store.groups["jump"]
    jump = msgspec.structs.replace(group.machines[0], tags={"a": "b"})
    define = c.Define(kind=group.kind, machines=(jump,), by="test")
    submit(service, "jump", define)
    labelled = msgspec.structs.replace(define, labels={"tier": "1"})
    submit(service, "jump", labelled)
    submit(service, "jump", msgspec.structs.replace(labelled, machines=()))
    # An event that waits for its machine, which is back only after it is over.
    service.machine("late")
    submit(service, "late", c.SetPolicy(policy=Policy(over_when=OverWhen.HEARD), by="test"))
    for _ in range(2):
        service.get("late")
        service.clock.advance("1m")
    service.approve("late", service.schedule("Reboot", "late"))
    service.clock.advance("30m")
    service.get("late")
    service._session.settle()
    # Hosts and rollouts.
    for verb in (
        node.hosts.degrade,
        node.hosts.repair,
        node.hosts.fail,
        node.hosts.cordon,
        node.hosts.uncordon,
    ):
        service._session.run(verb("rack-3", "test"))
    cut_off(service, "rack-3")
    service._session.run(node.hosts.without_node("rack-3", "test"))
    put(service, HostPut(Host(name="rack-9"), "test"))
    put(service, HostPut(Host(name="rack-9", labels={"row": "1"}), "test"))
    enrollment = Enrollment(token="T", digest="", expires_at=START)
    put(service, HostPut(Host(name="rack-9", enrollment=enrollment), "test"))
    put(service, HostPut(Host(name="rack-9", enrollment=enrollment, node_key="K"), "test"))
    service._session.run(node.hosts.revoke("rack-9", "test"))
    put(service, HostRemoved("rack-9", "test"))
    put(service, ConfigurationPut(MaintenanceConfiguration(name="nights"), "test"))
    put(service, ConfigurationRemoved("nights", "test"))
    over = rollout(ended_at=START)
    for what in ("started", "paused", "resumed", "skipped", "aborted", "ended", "changed"):
        put(service, RolloutPut(over, what, "test"))
    # Tokens, and a state that was another.
    token = Token(
        id="T", name="bot", role=Role.VIEWER, digest="", created_at=START, created_by="test"
    )
    put(service, TokenPut(token, "created", "test"), TokenPut(token, "revoked", "test"))
    halt = Halt(id="H", by="test", at=START)
    put(service, HaltPut(halt, PLACED, "test"), HaltReleased(halt.id, halt.scope, "", "test"))
    put(service, StateRestored(1))
    found = {record.what for record in records(service)}
    only_on_a_real_clock = {
        RecordKind.CLOCK_ACCEPTED,
        RecordKind.RETIMED,
    }  # see test_wrong_clock.py
    assert found == set(RecordKind) - only_on_a_real_clock
    by_hand = [r for r in records(service) if r.what.value.startswith(("host-", "rollout-"))]
    assert {r.by for r in by_hand} <= {"test", "start", "node"}


def rollout(**more: Any) -> Rollout:
    step = Step(cause=f"{prefix('R1')}web/0", group="web", machines=("web_0",))
    return Rollout(
        **{
            "id": "R1",
            "type": EventType.REBOOT,
            "lanes": (Lane(name="web", steps=(step,)),),
            "by": "test",
            "created_at": START,
            **more,
        }
    )


def test_a_restart_records_nothing_twice(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    with Service(FLEET, state=state) as service:
        service.get("web_1")
        event = service.schedule("Reboot", "web_0")
        service.get("web_1")
        save(service)
        before = records(service)
    with Service(FLEET, state=state) as service:
        service.get("web_2")
        save(service)
        assert records(service) == before
        assert story(service, event=event.id) == [("raised", "test"), ("seen", "web_1")]


def test_an_event_that_is_over_before_its_first_sight_is_saved_is_recorded_as_seen(
    service: Service,
) -> None:
    """The event is over before its first sight is saved."""
    service.get("web_0")
    event = service.schedule("Reboot", "web_0")
    service.get("web_0")
    service.cancel(event)
    save(service)
    assert story(service, event=event.id, what=(RecordKind.SEEN,)) == [("seen", "web_0")]


def test_a_first_sight_is_recorded_before_the_approval_it_leads_to(service: Service) -> None:
    """All of it happens at one instant of the virtual clock."""
    service.get("web_0")
    event = service.schedule("Reboot", "web_0")
    service.get("web_0")
    until(lambda: ("seen", "web_0") in story(service, event=event.id))  # without a save()
    service.approve("web_0", event)
    assert story(service, event=event.id)[:4] == [
        ("raised", "test"),
        ("seen", "web_0"),
        ("approved", "web_0"),
        ("started", "web_0"),
    ]


@contextlib.contextmanager
def unsaved(service: Service) -> Iterator[None]:
    """No sightings can be saved meanwhile."""

    async def fail(_sightings: Any) -> None:
        raise OSError("no space left on device")

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(service._session.node.store, "save", fail)
        yield


def test_a_first_sight_that_could_not_be_saved_is_saved_later(service: Service) -> None:
    service.get("web_0")
    event = service.schedule("Reboot", "web_0")
    with unsaved(service):
        service.get("web_0")
        with pytest.raises(OSError, match="no space"):
            save(service)
    service.clock.advance("1m")
    service.get("web_1")
    save(service)
    (first,) = records(service, event=event.id, what=(RecordKind.SEEN,))
    assert (first.by, first.at) == ("web_0", START)


def test_all_records_but_first_sights_can_be_rebuilt_from_the_commits(service: Service) -> None:
    a_life(service)
    service._session.run(service._session.node.hosts.fail("rack-1", "test"))
    service.clock.advance("1h")

    async def anew() -> list[Record]:
        groups: dict[str, Group] = {}
        scribe = HistoryWriter(groups, {})
        found: list[Record] = []
        async for commit in service._session.node.store.commits(0):
            changed = [(entry.group, entry.items) for entry in commit.entries]
            found += scribe.records(commit.at, changed, commit.puts)
            for name, items in changed:
                groups[name] = apply(groups.get(name) or Group(name=name), items)
        return found

    def unnumbered(found: list[Record]) -> list[Record]:
        return [
            msgspec.structs.replace(record, seq=0, shown=None)
            for record in sorted(found, key=lambda record: (record.at, record.seq))
            if record.what is not RecordKind.SEEN
        ]

    assert unnumbered(records(service)) == unnumbered(service._session.run(anew()))


def test_a_guest_that_approved_finds_it_in_its_own_history(service: Service) -> None:
    event = a_life(service)
    found = story(service, machine="web_1", event=event.id)
    assert found == [("seen", "web_1"), ("approved", "web_1"), ("started", "web_1")]


def test_the_command_shows_a_table_the_newest_last(service: Service) -> None:
    event = a_life(service)
    shown = run(service, "--machine", "web_0", "--limit", "3")
    assert shown.exit_code == 0
    head, *rows = shown.stdout.splitlines()
    assert head.split() == ["TIME", "WHAT", "BY", "ABOUT", "EVENT", "NOTE"]
    assert [row.split()[2] for row in rows] == ["answered", "attempted", "finished"]
    assert all(event.id in row for row in rows)
    assert "Reboot web_0" in rows[-1]
    assert "carried out" in rows[-1]


def test_the_command_filters_by_everything_and_writes_json_lines(stored: Service) -> None:
    service = stored
    event = a_life(service)
    by_event = lines(run(service, "--event", event.id[:8].lower(), "--json"))
    assert [r["what"] for r in by_event][:3] == ["raised", "seen", "approved"]
    assert by_event[0]["machines"] == ["web_0"]
    assert by_event[0]["at"] == "2027-01-15T08:00:00Z"
    assert [r["what"] for r in lines(run(service, "--host", "rack-1", "--json"))] == [
        "host-added",
        "machine-added",
        "machine-added",
    ]
    recent = lines(run(service, "--group", "web", "--since", "20m", "--json"))
    assert [r["what"] for r in recent] == [
        "approved",
        "started",
        "answered",
        "attempted",
        "finished",
    ]
    until = lines(run(service, "--until", "2027-01-15T08:00:01Z", "--what", "raised", "--json"))
    assert [r["event"] for r in until] == [event.id]
    some = lines(run(service, "--what", "started,finished", "--json", "--limit", "1"))
    assert [r["what"] for r in some] == ["finished"]


def test_a_name_that_is_gone_still_has_its_history_and_one_that_never_was_is_refused(
    service: Service,
) -> None:
    group = service._session.node.store.groups["jump"]
    submit(service, "jump", c.Define(kind=group.kind, machines=()))
    assert lines(run(service, "--machine", "jump", "--json"))[-1]["what"] == "machine-removed"
    never = run(service, "--machine", "web_00")
    assert never.exit_code == 1
    assert re.search("no machine 'web_00'.* 'web_0'", never.stderr)
    assert "'rack-1'" in run(service, "--host", "rack1", "--json").stderr
    assert "no group 'wbe'" in run(service, "--group", "wbe").stderr
    quiet = run(service, "--machine", "web_1", "--what", "approved")
    assert (quiet.exit_code, quiet.stdout[:11], quiet.stdout.count("\n")) == (0, "no matching", 1)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--event", "ZZ"), "no event 'ZZ'"),
        (("--what", "rised"), "record 'rised'"),
        (("--since", "yesterday"), "since: 'yesterday'"),
        (("--until", "2027-01-15T08:00:00"), "time zone"),
    ],
)
def test_an_invalid_filter_is_refused_with_one_line(
    service: Service, words: tuple[str, ...], reason: str
) -> None:
    result = run(service, *words)
    assert result.exit_code == 1
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_ambiguous_id_is_refused_with_the_ids_it_could_be(service: Service) -> None:
    for id in ("AAA1", "AAA2"):
        submit(service, "jump", c.Fail(id=id, type=EventType.REBOOT, machines=("jump",), by="x"))
    assert "AAA1, AAA2" in run(service, "--event", "AAA").stderr
    assert run(service, "--event", "AAA1").exit_code == 0


def test_each_page_continues_where_the_previous_one_ended(service: Service) -> None:
    a_life(service)
    client = ControlClient(service.control_url)
    newest_first = client.history().records
    assert newest_first == sorted(newest_first, key=lambda r: (r.at, r.seq), reverse=True)
    whole = [record.seq for record in newest_first]
    found: list[int] = []
    before: str | None = None
    while before != "":
        page = client.history(limit="4", before=before)
        found += [record.seq for record in page.records]
        before = page.next
    assert found == whole
    oldest = client.history(limit="4", oldest_first="true")
    more = client.history(limit="100", oldest_first="true", after=oldest.next)
    assert [r.seq for r in (*oldest.records, *more.records)] == whole[::-1]
    with pytest.raises(ControlError, match="'next'"):
        client.history(before="soon")


def test_an_export_writes_all_that_matches_into_a_file(service: Service, tmp_path: Path) -> None:
    a_life(service)
    file = tmp_path / "history.jsonl"
    result = run(service, "--export", str(file))
    assert result.exit_code == 0
    exported = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r["seq"] for r in exported] == [r.seq for r in records(service)]
    assert result.stderr == f"{len(exported)} records in {file}\n"
    assert lines(run(service, "--json")) == exported
    refused = run(service, "--export", str(tmp_path / "nowhere" / "file"))
    assert refused.exit_code == 1
    assert "No such file" in refused.stderr


def test_an_export_writes_into_a_pipe_and_through_a_link_without_replacing_them(
    service: Service, tmp_path: Path
) -> None:
    a_life(service)
    pipe, link, file = (tmp_path / name for name in ("pipe", "link", "file"))
    os.mkfifo(pipe)
    link.symlink_to(file)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(service, "--export", str(pipe), "--limit", "1").exit_code == 2
        assert run(service, "--export", str(pipe), "--what", "raised").exit_code == 0
        (piped,) = os.read(reading, 65_536).splitlines()
    finally:
        os.close(reading)
    assert pipe.is_fifo()
    assert json.loads(piped)["what"] == "raised"
    for _ in range(2):  # where it leads to nothing yet, and where it does
        assert run(service, "--export", str(link)).exit_code == 0
        assert link.is_symlink()
        assert not file.is_symlink()
        assert len(file.read_text().splitlines()) == len(records(service))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]


def test_following_by_number_misses_nothing(service: Service) -> None:
    """A first sight that could not be saved is written down late, with the time at which it
    happened."""
    client = ControlClient(service.control_url)

    def follow(after: int) -> list[int]:
        return [record.seq for record in client.history_after({}, after, None)]

    service.get("web_1")
    service.schedule("Reboot", "web_0")
    with unsaved(service):
        service.get("web_1")
        service.clock.advance("1m")
        service.schedule("Reboot", "jump")  # later than the first sight, and written before it
        followed = follow(0)
    save(service)
    assert records(service)[-1].what is not RecordKind.SEEN
    (late,) = follow(followed[-1])
    (seen,) = records(service, what=(RecordKind.SEEN,))
    assert late == seen.seq
    assert [*followed, late] == sorted(record.seq for record in records(service))
    assert follow(late) == []
    typed_lines = lines(run(service, "--json", "--after-seq", str(followed[2])))
    assert [record["seq"] for record in typed_lines] == [*followed[3:], late]
    first = lines(run(service, "--json", "--after-seq", "0", "--limit", "2"))
    assert [record["seq"] for record in first] == followed[:2]
    of_jump = lines(run(service, "--json", "--after-seq", "0", "--group", "jump"))
    assert {record["group"] for record in of_jump} == {"jump"}
    assert "seen" in run(service, "--after-seq", str(followed[-1])).stdout
    assert run(service, "--export", "x", "--after-seq", "1").exit_code == 2
    with pytest.raises(ControlError, match="after_seq cannot"):
        client.history(after_seq="1", oldest_first="true")


def test_each_page_by_number_continues_where_the_previous_one_ended(service: Service) -> None:
    a_life(service)
    client = ControlClient(service.control_url)
    whole = sorted(record.seq for record in records(service))
    found: list[int] = []
    after = "0"
    while after and len(found) <= len(whole):
        page = client.history(after_seq=after, limit="2")
        found += [record.seq for record in page.records]
        after = page.next
    assert found == whole


def test_a_group_that_is_enabled_again_has_new_first_sights(service: Service) -> None:
    """Its documents are counted from 1 again: the number alone says nothing."""
    service.get("web_0")
    submit(service, "web", c.Disable(by="test"))
    event = service.schedule("Reboot", "web_0")
    assert service.document("web_0")["DocumentIncarnation"] == 1
    save(service)
    seen = service._session.run(service._session.node.platform.explain(event.id))
    assert not isinstance(seen, Refused)
    assert list(seen.seen_by) == ["web_0"]
    assert ("seen", "web_0") in story(service, event=event.id)


def test_other_tasks_run_while_a_history_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a store that answers at once, too: after every page."""
    monkeypatch.setattr(service_history, "EXPORT_PAGE", 3)
    with Service(SAMPLE) as service:
        a_life(service)
        turns = pages = 0
        tasks = guard.Tasks()

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await guard.pause(0)

        async def export() -> None:
            nonlocal pages
            waiting = tasks.start(others(), "others")
            exported = await service._session.node.history.export(HistoryQuery())
            assert not isinstance(exported, Refused)
            taken = [record async for record in exported]
            pages = len(taken) // 3
            waiting.cancel()

        service._session.run(export())
        assert turns >= pages > 3


def test_an_export_holds_one_page_in_memory(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many match: a page is asked for when the one before it has been taken."""
    monkeypatch.setattr(service_history, "EXPORT_PAGE", 3)
    a_life(service)
    sizes: list[int] = []
    ask = service._session.node.store.history

    async def counted(wanted: HistoryQuery) -> Any:
        found = await ask(wanted)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(service._session.node.store, "history", counted)

    async def take(count: int) -> list[Record]:
        exported = await service._session.node.history.export(HistoryQuery())
        assert not isinstance(exported, Refused)
        found = []
        async for record in exported:
            found.append(record)
            if len(found) == count:
                break
        return found

    assert len(service._session.run(take(4))) == 4
    assert sizes == [3, 3]
    sizes.clear()
    whole = service._session.run(take(10_000))
    assert max(sizes) == 3
    assert [r.seq for r in whole] == [
        r.seq for r in service._session.run(ask(HistoryQuery(limit=10_000)))
    ]


def test_an_interrupted_export_fails_and_leaves_no_file(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_history, "EXPORT_PAGE", 3)
    monkeypatch.setattr(history_routes, "EXPORT_CHUNK", 1)
    monkeypatch.setattr(control_client, "READ_AT_ONCE", 10)
    ask = service._session.node.store.history

    async def broken(wanted: HistoryQuery) -> Any:
        if wanted.after is not None:
            raise OSError("the disk is gone")
        return await ask(wanted)

    monkeypatch.setattr(service._session.node.store, "history", broken)
    file = tmp_path / "history.jsonl"
    result = run(service, "--export", str(file))
    assert result.exit_code == 1
    assert "broke off" in result.stderr
    assert list(tmp_path.glob("*history*")) == []


def prune(service: Service) -> int:
    gone = service._session.run(service._session.node.history.prune())
    service._session.settle()
    return gone


def test_a_service_that_is_restarted_often_forgets_what_is_too_old_at_its_start(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state.db"
    with Service(FLEET, state=state) as service:
        event = a_life(service)
        assert service._session.node.history.pruned == 0
    with Service(FLEET, state=state, start=to_datetime(START + 100 * DAY)) as again:
        until(lambda: again._session.node.history.pruned > 0)
        assert records(again, event=event.id) == []


@pytest.mark.parametrize("durable", [True, False])
def test_records_older_than_the_limit_are_pruned(tmp_path: Path, durable: bool) -> None:
    state = tmp_path / "state.db" if durable else None
    with Service(FLEET, state=state) as service:
        old = a_life(service)
        service.clock.advance("89d")
        young = a_life(service)
        service.schedule("Reboot", "web_1", notice="30d")
        assert prune(service) == 0
        service.clock.advance("2d")
        before = dict(service._session.node.store.groups)
        assert service.approve("web_0", old).status == 200
        assert prune(service) > 0
        assert records(service, event=old.id) == []
        assert service.approve("web_0", old).status == 400
        assert service.approve("web_0", young).status == 200
        assert story(service, event=young.id)[0] == ("raised", "test")
        assert dict(service._session.node.store.groups) == before
        kept = records(service)
    if durable:
        with Service(FLEET, state=state, start=to_datetime(START + 92 * DAY)) as again:
            assert records(again) == kept
            assert dict(again._session.node.store.groups) == before
            again.clock.advance("30d")
            assert [event.type.value for event in again._session.node.platform.active()] == []


def test_a_rollout_keeps_its_events_as_long_as_it_is_kept(service: Service) -> None:
    cause = f"{prefix('R1')}web/0"
    waiting = rollout(paused=None, aborted=None)
    service._session.node.store.registry.put(
        RolloutPut(waiting)
    )  # quietly: it is not to do anything
    raised = c.Raise(
        id="A", type=EventType.REBOOT, machines=("web_0",), by="rollout R1", cause=cause
    )
    submit(service, "web", raised)
    submit(service, "web", c.Cancel(id="A", by="rollout R1"))
    service.clock.advance("100d")
    prune(service)
    assert [r.what for r in records(service, event="A")] == [
        RecordKind.RAISED,
        RecordKind.WITHDRAWN,
    ]
    over = msgspec.structs.replace(waiting, ended_at=START + DAY)
    put(service, RolloutPut(over, "ended", "test"))
    prune(service)
    assert "R1" not in service._session.node.store.registry.rollouts
    assert records(service, event="A") == []


def test_how_long_the_history_is_kept_is_a_setting(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    assert config(Settings(fleet=str(fleet))).history == 90 * DAY
    assert config(Settings(fleet=str(fleet), history="7d")).history == 7 * DAY
    assert config(Settings(fleet=str(fleet), history="")).history is None
    with pytest.raises(SettingsError, match=r"history = '2h': .* 1 d"):
        config(Settings(fleet=str(fleet), history="2h"))
