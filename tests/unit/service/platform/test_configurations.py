"""Windows, blackouts and postponing in a whole service, on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from structlog.testing import capture_logs

from forewarn.core import EventType, Policy, Refused, Status
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.events import Event
from forewarn.core.history import RecordKind
from forewarn.core.refusal import Hint
from forewarn.core.rollouts.selection import Selection
from forewarn.core.time import DAY, HOUR, MINUTE, Time
from forewarn.core.windows.may_postpone import parse_may_postpone
from forewarn.core.windows.model import Blackout, MaintenanceConfiguration, Window
from forewarn.core.windows.openings import is_open
from forewarn.core.windows.syntax import parse_window
from forewarn.service.platform.configurations import Configurations
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.store.port import HistoryQuery
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.support.instants import to_datetime
from forewarn.testing import Service

FLEET = """
hosts: [h1, h2]
groups:
  - name: web
    kind: scale-set
    labels: {tier: web}
    policy: {may_postpone: "2h, twice"}
    machines:
      - {name: web_0, host: h1, update_domain: 0}
      - {name: web_1, host: h2, update_domain: 1}
  - {name: db, kind: standalone, machines: [{name: db-0, host: h1}]}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    """The clock shows 2027-01-15 08:00 UTC, a Friday."""
    with Service(FLEET) as service:
        yield service


def now(service: Service) -> Time:
    return int(service._session.node.writer.now().at)


def run(service: Service, work: Any) -> Any:
    result = service._session.run(work)
    service._session.settle()
    assert not isinstance(result, Refused), result
    return result


def refused(service: Service, work: Any) -> str:
    return refusal(service, work).message


def refusal(service: Service, work: Any) -> Refused:
    result = service._session.run(work)
    assert isinstance(result, Refused)
    return result


def configure(service: Service, *windows: str, select: str = "", **more: Any) -> None:
    parsed = tuple(map(parse_window, windows))
    put(service, MaintenanceConfiguration(name="nights", select=select, windows=parsed, **more))


def put(service: Service, configuration: MaintenanceConfiguration) -> None:
    node = service._session.node
    run(service, Configurations(node.store, node.writer).set(configuration, "ops"))


def unconfigure(service: Service) -> None:
    node = service._session.node
    run(service, Configurations(node.store, node.writer).remove("nights", "ops"))


def policy(service: Service, group: str, **changes: Any) -> None:
    def changed(before: Policy) -> Policy:
        return msgspec.structs.replace(before, **changes)

    run(service, service._session.node.platform.set_policy(group, changed, "ops"))


def event(service: Service, id: str) -> Event:
    found = run(service, service._session.node.platform.event(id))
    assert isinstance(found, Event)
    return found


def test_an_event_is_announced_for_its_window_and_an_approval_waits_for_it(
    service: Service,
) -> None:
    service.document("web_0")
    configure(service, "22:00-04:00", select="tier=web")
    announced = service.schedule("Reboot", "web_0")
    assert event(service, announced.id).not_before == now(service) + 14 * HOUR
    service.approve("web_0", announced)
    (hold,) = run(service, service._session.node.platform.explain(announced.id)).holds
    assert (hold.kind.value, hold.until) == ("window", now(service) + 14 * HOUR)
    assert "no window of 'nights' is open" in hold.message
    service.clock.advance("13h59m")
    assert announced.status == "Scheduled"
    service.clock.advance("1m")
    assert event(service, announced.id).started_at == event(service, announced.id).not_before


def test_labels_select_the_machines_of_a_configuration(service: Service) -> None:
    configure(service, "22:00-04:00", select="tier=web")
    other = service.schedule("Reboot", "db-0")
    assert event(service, other.id).not_before == now(service) + 15 * MINUTE


def test_user_events_and_evictions_ignore_configurations(service: Service) -> None:
    service.document("web_0")
    configure(service, "22:00-04:00")
    restart = service.restart("web_0")
    service.clock.advance("16m")
    assert event(service, restart.id).started_at is not None
    node = service._session.node
    failed = run(service, node.hosts.fail("h2", "ops"))
    assert failed.events[0].status is Status.STARTED


def test_a_window_that_is_added_holds_what_was_announced_beyond_its_not_before(
    service: Service,
) -> None:
    announced = service.schedule("Reboot", "web_0")
    before = event(service, announced.id).not_before
    configure(service, "22:00-04:00")
    service.clock.advance("1h")
    held = event(service, announced.id)
    assert (held.status, held.not_before) == (Status.SCHEDULED, before)
    unconfigure(service)
    assert event(service, announced.id).started_at == now(service)


def test_the_events_of_a_host_start_together_when_all_groups_allow_it(service: Service) -> None:
    policy(service, "web", windows=(parse_window("20:00-23:00"),))
    policy(service, "db", windows=(parse_window("22:00-04:00"),))
    hosts = service._session.node.hosts
    outcomes = run(service, hosts.maintain("h1", EventType.REBOOT, "ops"))
    assert {e.not_before for e in outcomes.events} == {now(service) + 14 * HOUR}
    service.clock.advance("14h")
    assert {event(service, e.id).started_at for e in outcomes.events} == {now(service)}


def test_maintenance_of_a_host_whose_groups_windows_never_meet_is_refused(service: Service) -> None:
    policy(service, "web", windows=(parse_window("20:00-22:00"),))
    policy(service, "db", windows=(parse_window("22:00-04:00"),))
    hosts = service._session.node.hosts
    problem = refusal(service, hosts.maintain("h1", EventType.REBOOT, "ops"))
    assert problem.hint is Hint.IGNORE_WINDOWS
    assert "'group db', 'group web'" in problem.message
    run(service, hosts.maintain("h1", EventType.REBOOT, "ops", ignore_windows=True))


def test_a_chosen_time_outside_is_refused_and_an_override_is_on_record(service: Service) -> None:
    configure(service, "22:00-04:00")
    node = service._session.node
    at = now(service) + HOUR
    kwargs: Any = {"type": EventType.REBOOT, "machines": ("web_0",), "by": "ops", "not_before": at}
    problem = refusal(service, node.platform.schedule(**kwargs))
    assert problem.hint is Hint.IGNORE_WINDOWS
    assert "'nights' is 2027-01-15 22:00:00Z" in problem.message
    outcome = run(service, node.platform.schedule(**kwargs, ignore_windows=True))
    assert event(service, outcome.event.id).ignore_windows
    waiting = service.schedule("Reboot", "web_1")
    run(service, node.platform.approve(waiting.id, "ops", ignore_windows=True))
    assert event(service, waiting.id).started_at == now(service)


def test_an_override_breaks_the_promise_to_one_group_and_names_those_that_stand(
    service: Service,
) -> None:
    service.document("web_0")
    service.document("db-0")
    node = service._session.node
    noon = Blackout(begins=now(service), ends=now(service) + 5 * HOUR, text="release day")
    policy(service, "web", windows=(parse_window("20:00-23:00"),))
    policy(service, "db", blackouts=(noon,))
    outcomes = run(service, node.hosts.maintain("h1", EventType.REBOOT, "ops"))
    ids = {e.group: e.id for e in outcomes.events}
    outcome = run(service, node.platform.approve(ids["web"], "ops", ignore_windows=True))
    (note,) = outcome.notes
    assert f"'db' (event {ids['db']})" in note
    run(service, node.platform.approve(ids["db"], "ops"))
    (hold,) = run(service, node.platform.explain(ids["web"])).holds
    assert (hold.kind, hold.until) == (HoldKind.BLACKOUT, noon.ends)
    assert "'group db'" in hold.message
    service.clock.advance("5h")
    assert {event(service, id).started_at for id in ids.values()} == {noon.ends}


def test_all_events_of_a_host_in_a_rollout_can_be_let_out_of_its_window(service: Service) -> None:
    node = service._session.node
    wanted = RolloutRequest(
        type=EventType.REBOOT,
        selection=Selection(hosts=("h1",)),
        by="ops",
        windows=(parse_window("22:00-02:00"),),
    )
    run(service, node.rollouts.start(wanted))
    first, second = [e.id for e in node.platform.active()]
    outcome = run(service, node.platform.approve(first, "ops", ignore_windows=True))
    assert second in outcome.notes[0]
    assert event(service, first).started_at is None
    run(service, node.platform.approve(second, "ops", ignore_windows=True))
    assert event(service, first).started_at == event(service, second).started_at == now(service)


def test_a_failing_host_is_emptied_in_the_last_window_or_at_the_deadline(service: Service) -> None:
    configure(service, "22:00-04:00")
    hosts = service._session.node.hosts
    (planned,) = run(service, hosts.degrade("h2", "ops", notice=7 * DAY)).events
    assert planned.not_before == now(service) + 6 * DAY + 14 * HOUR
    assert planned.deadline == now(service) + 7 * DAY
    soon = run(service, hosts.degrade("h1", "ops", notice=2 * HOUR)).events
    assert {e.not_before for e in soon} == {now(service) + 2 * HOUR}
    service.clock.advance("2h")
    assert all(event(service, e.id).started_at is not None for e in soon)


def test_a_blackout_is_waited_for(service: Service) -> None:
    today = Blackout(begins=now(service), ends=now(service) + 5 * HOUR, text="release day")
    configure(service, blackouts=(today,))
    announced = service.schedule("Reboot", "web_0")
    assert event(service, announced.id).not_before == today.ends


def test_a_configuration_that_leaves_a_group_no_time_for_maintenance_is_warned_of(
    service: Service,
) -> None:
    node = service._session.node
    policy(service, "web", windows=(parse_window("20:00-22:00"),))
    nights = MaintenanceConfiguration(name="nights", windows=(parse_window("22:00-04:00"),))
    says = (
        "group 'web': maintenance cannot start within 400 d: there is no time that the windows and"
        " blackouts of 'group web', 'nights' allow",
    )
    assert run(service, Configurations(node.store, node.writer).set(nights, "ops")) == says
    other = MaintenanceConfiguration(name="others", select="tier=db")
    assert run(service, Configurations(node.store, node.writer).set(other, "ops")) == ()
    windows = 'policy: {may_postpone: "2h, twice", windows: ["10:00-12:00"]}'
    fleet = FLEET.replace('policy: {may_postpone: "2h, twice"}', windows)
    difference = run(service, node.fleet_apply.text(fleet, by="ops", plan=True))
    assert difference.warnings == says
    assert run(service, node.fleet_apply.text(fleet, by="ops")).warnings == says
    changed = f'maintenance: [{{name: noon, windows: ["12:00-14:00"]}}]{fleet}'
    (noon,) = run(service, node.fleet_apply.text(changed, by="ops")).warnings
    assert "'group web', 'noon'" in noon


def test_a_service_starts_with_a_window_whose_time_zone_is_no_longer_known(
    tmp_path: Path,
) -> None:
    lost = Window(text="sat 22:00-04:00 Mars/Base", opens=22 * 60, closes=4 * 60, zone="Mars/Base")
    state = tmp_path / "state.db"
    with Service(FLEET, store=SqliteStore(state)) as service:
        waiting = service.schedule("Reboot", "web_0")
        put(service, MaintenanceConfiguration(name="nights", windows=(lost,)))
        put(service, MaintenanceConfiguration(name="idle"))
    with capture_logs() as lines, Service(FLEET, store=SqliteStore(state)) as service:
        assert [(line["window"], line["of"]) for line in lines if "window" in line] == [
            (lost.text, "maintenance configuration 'nights'")
        ]
        service.clock.advance("1h")
        (hold,) = run(service, service._session.node.platform.explain(waiting.id)).holds
        assert hold.kind is HoldKind.WINDOW
        assert f"'{lost.text}' never opens" in hold.message
        assert "'nights'" in hold.message
        assert "'idle'" not in hold.message  # which limits nothing
        assert "operator" in hold.unblocked_by
        windows = lost, parse_window("22:00-04:00")
        put(service, MaintenanceConfiguration(name="nights", windows=windows))
        (hold,) = run(service, service._session.node.platform.explain(waiting.id)).holds
        assert "opens at 2027-01-15 22:00:00Z" in hold.message
        assert f"'{lost.text}' never" in hold.message
        service.clock.advance("14h")
        assert event(service, waiting.id).started_at is not None


# Postponing.


def postpone(service: Service, id: str, **until: Any) -> Any:
    return service._session.node.platform.postpone(id, "ann", **until)


def test_postponing_moves_not_before_and_changes_the_document(service: Service) -> None:
    service.document("web_0")
    announced = service.schedule("Reboot", "web_0")
    before, incarnation = event(service, announced.id), _incarnation(service)
    run(service, postpone(service, announced.id, duration=30 * MINUTE))
    after = event(service, announced.id)
    assert after.not_before == before.not_before + 30 * MINUTE
    assert [(p.by, p.before, p.after) for p in after.postponed] == [
        ("ann", before.not_before, after.not_before)
    ]
    assert _incarnation(service) == incarnation + 1
    service.clock.advance("44m59s")
    assert announced.status == "Scheduled"
    service.clock.advance("1s")
    assert announced.status == "Started"
    assert "has started" in refused(service, postpone(service, announced.id, duration=MINUTE))


def _incarnation(service: Service) -> int:
    return int(service._session.node.store.groups["web"].incarnation)


def test_postponing_ends_where_the_policy_says(service: Service) -> None:
    announced = service.schedule("Reboot", "web_0")
    message = refused(service, postpone(service, announced.id, duration=3 * HOUR))
    assert "2027-01-15 10:15:00Z" in message
    run(service, postpone(service, announced.id, duration=HOUR))
    run(service, postpone(service, announced.id, until=now(service) + 2 * HOUR))
    message = refused(service, postpone(service, announced.id, duration=MINUTE))
    assert "postponed twice" in message
    assert "group 'web'" in message
    other = service.schedule("Reboot", "db-0")
    assert "does not allow" in refused(service, postpone(service, other.id, duration=MINUTE))


def test_an_approved_event_or_a_users_cannot_be_postponed(service: Service) -> None:
    service.document("web_0")
    restart = service.restart("web_0")
    assert "by the platform" in refused(service, postpone(service, restart.id, duration=MINUTE))
    first, second = service.schedule("Reboot", "web_0"), service.schedule("Reboot", "web_1")
    service.approve("web_0", first)
    service.approve("web_0", second)
    assert "been approved" in refused(service, postpone(service, second.id, duration=MINUTE))


def test_all_events_of_a_host_are_postponed_together(service: Service) -> None:
    hosts = service._session.node.hosts
    outcomes = run(service, hosts.maintain("h1", EventType.REBOOT, "ops"))
    ids = {e.group: e.id for e in outcomes.events}
    assert "does not allow" in refused(service, postpone(service, ids["db"], duration=MINUTE))
    run(service, postpone(service, ids["web"], duration=HOUR))
    both = [event(service, id) for id in ids.values()]
    assert {e.not_before for e in both} == {now(service) + 75 * MINUTE}
    assert {e.group: e.postponed[0].group for e in both} == {"web": "web", "db": ""}
    policy(service, "db", may_postpone=parse_may_postpone("1h"))
    run(service, postpone(service, ids["db"], duration=HOUR))  # web's does not count as its own
    service.clock.advance("2h15m")
    assert {event(service, id).started_at for id in ids.values()} == {now(service)}


def test_a_postponed_event_moves_on_to_the_next_opening_if_it_may(service: Service) -> None:
    windows = tuple(map(parse_window, ("08:00-09:00", "10:00-11:00", "22:00-23:00")))
    policy(service, "web", windows=windows)
    announced = service.schedule("Reboot", "web_0")
    run(service, postpone(service, announced.id, duration=HOUR))
    assert event(service, announced.id).not_before == now(service) + 2 * HOUR
    message = refused(service, postpone(service, announced.id, duration=2 * HOUR))
    assert "2027-01-15 10:15:00Z" in message


# Rollouts.


def test_a_rollout_obeys_its_windows_and_those_that_stand_and_goes_as_planned(
    service: Service,
) -> None:
    configure(service, "22:00-02:00", select="tier=web")
    wanted = RolloutRequest(
        type=EventType.REBOOT,
        selection=Selection(groups=("web", "db")),
        by="ops",
        at_once=2,
        windows=(parse_window("01:00-06:00"),),
    )
    node = service._session.node
    _, plan = run(service, node.rollouts.plan(wanted))
    begin = now(service)
    assert {p.step.group: p.not_before - begin for p in plan.steps if not p.step.domain} == {
        "web": 17 * HOUR,
        "db": 17 * HOUR,
    }
    report = run(service, node.rollouts.start(wanted))
    service.clock.advance("5d")
    done = run(service, node.rollouts.report(report.rollout.id))
    assert done.state == "done"
    past = run(service, node.platform.past(None, 100))
    starts = sorted((e.group, e.domain, e.started_at) for e in past)
    planned = sorted((p.step.group, p.step.domain, p.not_before) for p in plan.steps)
    assert starts == planned
    allowed = (*node.store.registry.configurations.values(),)
    assert all(is_open(allowed, e.started_at) for e in past if e.group == "web")


@pytest.mark.parametrize("selection", [Selection(groups=("web",)), Selection(hosts=("h1",))])
def test_a_rollout_may_ignore_windows_that_stand_but_not_its_own(
    service: Service, selection: Selection
) -> None:
    configure(service, "22:00-02:00")
    wanted = RolloutRequest(
        type=EventType.REBOOT,
        selection=selection,
        by="ops",
        windows=(parse_window("12:00-13:00"),),
        ignore_windows=True,
    )
    node = service._session.node
    _, plan = run(service, node.rollouts.plan(wanted))
    assert plan.steps[0].not_before == now(service) + 4 * HOUR
    report = run(service, node.rollouts.start(wanted))
    noon = now(service) + 4 * HOUR
    first = node.platform.active()[0]
    assert (first.ignore_windows, first.not_before) == (True, noon)
    service.clock.advance("4h")
    assert event(service, first.id).started_at == noon
    started = HistoryQuery(what=(RecordKind.ROLLOUT_STARTED,), limit=10)
    (record,) = run(service, node.history.page(started)).records
    assert (record.cause, record.by) == (report.rollout.id, "ops")
    assert "ignores windows" in record.note


def test_a_rollout_that_could_never_start_is_refused(service: Service) -> None:
    configure(service, "22:00-02:00")
    wanted = RolloutRequest(
        type=EventType.REBOOT,
        selection=Selection(groups=("web",)),
        by="ops",
        windows=(parse_window("12:00-13:00"),),
    )
    problem = refusal(service, service._session.node.rollouts.start(wanted))
    assert problem.hint is Hint.IGNORE_WINDOWS
    assert "'nights'" in problem.message


# Nights in which the clocks change.


@pytest.mark.parametrize(
    ("day", "hours"), [("2027-03-27", 5), ("2027-10-30", 7)], ids=["forward", "back"]
)
def test_starts_obey_local_time_in_a_night_in_which_the_clocks_change(day: str, hours: int) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    evening = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=berlin)
    with Service(FLEET, start=evening) as service:
        node = service._session.node
        configure(service, "22:00-04:00 Europe/Berlin")
        service.document("web_0")
        running = service.schedule("Reboot", "web_0")
        opens = event(service, running.id).not_before
        assert to_datetime(opens).astimezone(berlin).hour == 22
        held = service.schedule("Reboot", "web_1", not_before=to_datetime(opens + HOUR))
        closes = opens + hours * HOUR
        late = node.platform.schedule(
            type=EventType.REBOOT, machines=("db-0",), by="ops", not_before=closes
        )
        assert refusal(service, late).hint is Hint.IGNORE_WINDOWS
        last = service.schedule("Reboot", "db-0", not_before=to_datetime(closes - MINUTE))
        halt = run(service, node.halts.place(by="ops", groups=("db",)))
        service.clock.advance(to_datetime(closes) - service.clock.now)
        run(service, node.halts.release(halt.halt.id, "ops"))  # too late for this night
        service.clock.advance("1d")
        starts = {id: event(service, id).started_at for id in (running.id, held.id, last.id)}
        assert starts[running.id] == opens
        assert starts[held.id] == opens + HOUR
        local = to_datetime(starts[last.id] or 0).astimezone(berlin)
        assert (local.hour, local.minute) == (22, 0)
        assert local.date() > to_datetime(opens).astimezone(berlin).date()
