"""Playing a scenario: what happens when, what is waited for, and what is said at the end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from urllib.request import Request, urlopen
from xml.etree import ElementTree

import pytest

from forewarn.testing import RefusedError, Service, run_scenario
from forewarn.testing.kit.requests import Requests
from forewarn.testing.scenarios import Result, parse
from forewarn.testing.scenarios.result import CommandExit
from forewarn.testing.session import Session

POLL = "/metadata/scheduledevents?api-version=2020-07-01"
HEAD = """\
scenario: trial
fleet:
  hosts: [rack-1, rack-2]
  groups:
    - {name: web, kind: scale-set, machines: {count: 3, spot: true, hosts: [rack-1, rack-2]}}
    - {name: db, kind: standalone, machines: [{name: db, host: rack-2}]}
as: web_0
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


class Client:
    """Asks, and approves what it is told to."""

    def __init__(self, service: Service, approves: bool = False, machine: str = "web_0") -> None:
        self._service = service
        self._approves = approves
        self._machine = machine
        self.saw: list[tuple[str, str]] = []

    def __call__(self) -> None:
        answer = self._service.get(self._machine)
        if answer.status != 200 or "Events" not in answer.body.decode():
            return
        for event in answer.json()["Events"]:
            stage = event["EventType"], event["EventStatus"]
            if stage not in self.saw:
                self.saw.append(stage)
            if self._approves and event["EventStatus"] == "Scheduled":
                self._service.approve(self._machine, event["EventId"])


def play(
    service: Service, text: str, client: Callable[[], object] | None = None, **more: float
) -> Result:
    return service.play_scenario(
        parse(HEAD + text), client=client or Client(service), timeout=0.05, **more
    )


def times(result: Result) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for step in result.steps:
        found.setdefault(step.step, []).append(step.at)
    return found


def test_a_client_sees_every_stage_of_what_a_timeline_does(service: Service) -> None:
    client = Client(service)
    result = play(service, "timeline: [{at: 10s, do: restart, machine: web_0}]", client)
    assert client.saw == [("Reboot", "Scheduled"), ("Reboot", "Started")]
    assert result.ok
    assert result.seconds == 10 + 15 * 60 + 10 * 60
    assert times(result) == {"restart web_0": [10.0]}


def test_lines_wait_for_stages_of_events(service: Service) -> None:
    result = play(
        service,
        """
timeline:
  - {at: 1m, do: restart, machine: web_0, name: first}
  - {after: first seen by web_0, delay: 5s, do: wait}
  - {when-approved: first, delay: 1m, do: restart, machine: web_1, name: second}
  - {after: second started, do: fail, machine: web_2, name: third}
  - {after: third over, do: disable, group: web}
  - {at: 3m, do: approve, event: first}
""",
    )
    assert result.check().ok
    assert times(result) == {
        "restart web_0": [60.0],
        "wait": [65.0],
        "approve first": [180.0],
        "restart web_1": [240.0],
        "fail Redeploy web_2": [240.0 + 15 * 60],
        "disable web": [240.0 + 25 * 60],
    }


def test_a_line_is_repeated(service: Service) -> None:
    result = play(
        service,
        """
timeline:
  - {at: 1m, repeat: {every: 1h, times: 3}, do: restart, machine: web_0, name: again}
expect:
  - {event: again, finished: true}
""",
    )
    assert times(result) == {"restart web_0": [60.0, 3660.0, 7260.0]}
    assert result.ok
    ids = {line["event"] for line in result.lines if line["kind"] == "event"}
    assert len(ids) == 3


def test_a_line_whose_condition_is_never_met_fails_the_run(service: Service) -> None:
    result = play(
        service,
        """
timeline:
  - {at: 1m, do: restart, machine: web_0, name: restart}
  - {when-approved: restart, do: restart, machine: web_1, name: other}
  - {after: other over, do: wait}
""",
    )
    assert not result.ok
    assert result.seconds == 60 + 25 * 60, "it ends when nothing can happen any more"
    [restart, wait] = result.failures
    assert re.match("line 11: restart web_1 .*'restart'.*approved", restart)
    assert re.match("line 12: wait .*'restart'.*approved", wait)


def test_a_scenario_ends_at_the_time_that_it_names(service: Service) -> None:
    result = play(
        service,
        """
timeline:
  - {at: 1m, do: restart, machine: web_0, name: restart}
  - {after: restart over, do: wait}
  - {at: 20m, do: wait}
expect: [{event: restart, over: false}, {event: restart, started: true}]
ends: 16m30s
""",
    )
    assert result.seconds == 16 * 60 + 30
    assert [one.ok for one in result.expectations] == [True, True]
    [after, at] = result.failures
    assert re.match("line 11: wait .*ended before 'restart'", after)
    assert re.match("line 12: wait .*20 min.*ended before", at)


def test_a_refusal_of_the_service_fails_the_run(service: Service) -> None:
    result = play(
        service,
        """
timeline:
  - {at: 1m, do: schedule, type: Reboot, machine: web_0, notice: 1m, name: hasty}
  - {after: hasty started, do: wait}
  - {at: 2m, do: restart, machine: web_1}
""",
    )
    [refused, wait] = result.failures
    assert re.match("line 10: schedule Reboot web_0 .*15 min.*1 min.*short_notice: true", refused)
    assert re.match("line 11: wait .*'hasty'", wait)
    assert times(result)["restart web_1"] == [120.0], "the rest is played all the same"


def test_operators_cancel_approve_and_finish(service: Service) -> None:
    result = play(
        service,
        """
timeline:
  - {at: 1m, do: maintain, host: rack-2, type: Reboot, name: update}
  - {at: 2m, do: cancel, event: update}
  - {at: 3m, do: restart, machine: web_0, name: restart}
  - {at: 4m, do: approve, event: restart}
  - {after: restart started, delay: 1m, do: finish, event: restart}
expect:
  - {event: update, withdrawn: {within: 1m}}
  - {event: restart, approved: {by: any}}
  - {event: restart, finished: {within: 2m, ahead: 12m}}
""",
    )
    assert result.check().ok


def test_a_line_can_wait_until_one_machine_has_seen_an_event(service: Service) -> None:
    result = play(
        service,
        """
timeline:
  - {at: 1m, do: maintain, host: rack-2, type: Reboot, name: update}
  - {after: update approved by db, delay: 1m, do: cancel, event: update}
expect: [{event: update, withdrawn: {within: 1m}}]
""",
        Client(service, approves=True, machine="db"),
    )
    assert result.check().ok, "of the two events of the host, db sees one"


def test_the_name_of_a_rollout_covers_all_its_events(service: Service) -> None:
    result = play(
        service,
        """
timeline:
  - {at: 1m, do: rollout, type: Freeze, groups: [web], bake: 2m, name: update}
  - {after: update over, do: wait}
expect:
  - {event: update, of: web_2, finished: true}
  - {event: update, approved: false}
""",
    )
    assert result.check().ok
    assert times(result)["wait"] == [60 + 3 * 20 * 60 + 3 * 2 * 60]


def test_every_other_verb_can_be_played(service: Service) -> None:
    result = play(
        service,
        """
timeline:
  - {at: 1m, do: evict, machine: web_1, name: eviction}
  - {after: eviction over, do: restore, machine: web_1}
  - {at: 1h, do: evict, group: web, name: all}
  - {after: all over, do: restore, machine: web_0}
  - {at: 2h, do: degrade, host: rack-1, name: degraded}
  - {at: 3h, do: repair, host: rack-1}
  - {at: 4h, do: redeploy, machine: db, name: moved}
  - {at: 5h, do: fail, host: rack-1, name: failed}
  - {at: 6h, do: delete, machine: db}
  - {at: 7h, do: scale-in, group: web, to: 0}
  - {at: 8h, do: interrupt, lost: 2m}
expect:
  - {event: all, finished: true}
  - {event: degraded, withdrawn: true}
  - {event: moved, finished: true}
  - {event: failed, started: {within: 0s}}
""",
    )
    assert result.check().ok
    assert any(line["kind"] == "step" for line in result.lines)


def test_faults_come_by_time_or_after_events_and_are_cleared_by_name(service: Service) -> None:
    answers: list[int] = []

    def client() -> None:
        answers.append(service.get("web_0").status)

    result = play(
        service,
        """
faults:
  - {kind: gone, machine: web_0, name: down}
  - {kind: error, machine: web_0, after: restart started, name: broken}
timeline:
  - {at: 1m, do: clear-faults, fault: down}
  - {at: 2m, do: restart, machine: web_0, name: restart}
  - {after: restart over, do: fault, kind: throttled, times: 1}
  - {after: restart over, delay: 1s, do: clear-faults}
""",
        client,
    )
    assert result.check().ok
    stages = [status for at, status in enumerate(answers) if [*answers[:at], 0][at - 1] != status]
    assert stages[:3] == [410, 200, 500]
    assert answers[-1] == 200
    assert service.faults.list() == []


def test_failed_expectations_name_machine_and_time(service: Service) -> None:
    result = play(
        service,
        """
timeline: [{at: 10s, do: restart, machine: web_1, name: restart}]
expect:
  - {event: restart, approved: {by: own}}
  - {event: restart, approved: {by: web_1}}
  - {event: restart, approved: false}
  - {event: restart, started: {ahead: 20m}}
  - {event: restart, withdrawn: true}
  - {event: restart, seen: {by: web_2}}
  - {event: restart, in-time: false}
  - {event: restart, prepared: true}
""",
        Client(service, approves=True),
    )
    messages = [one.message for one in result.expectations if not one.ok]
    values = [
        "web_0 approved .*web_1",
        "web_1 never approved .*web_0",
        "approved 0 s .*by web_0",
        "started 15 min .*20 min",
        "never was withdrawn",
        "web_2 never saw .*web_0",
        "web_0 saw it in time",
        "reported .*ready",
    ]
    for message, value in zip(messages, values, strict=True):
        assert re.match(f"Reboot of web_1: .*{value}", message)
    with pytest.raises(AssertionError, match=r"trial: failed\n  ✗ restart"):
        result.check()


def test_a_client_that_never_asks_sees_nothing_in_time(service: Service) -> None:
    result = play(
        service,
        """
timeline: [{at: 10s, do: restart, machine: web_0, name: restart}]
expect: [{event: restart, in-time: true}, {event: restart, seen: {within: 5s}}]
""",
        lambda: None,
    )
    assert [one.ok for one in result.expectations] == [False, False]
    assert all("web_0 never saw" in one.message for one in result.expectations)


def test_a_client_that_polls_late_fails_with_how_late_it_was(service: Service) -> None:
    def client() -> None:
        if service.clock.now.minute >= 15:
            Client(service)()

    result = play(
        service,
        """
timeline: [{at: 0s, do: restart, machine: web_0, name: restart}]
expect: [{event: restart, in-time: true}, {event: restart, seen: {within: 5s}}]
""",
        client,
    )
    [in_time, seen] = result.expectations
    assert not in_time.ok
    assert re.search("web_0 saw .*started 15 min", in_time.message)
    assert not seen.ok
    assert re.search("web_0 saw .*15 min.* 5 s", seen.message)


def test_complaints_fail_the_run_unless_allowed(service: Service) -> None:
    result = play(
        service,
        """
timeline: [{at: 10s, do: restart, machine: web_0}]
expect: [no-complaints, {complaints: [missing-header]}]
""",
        lambda: service.request("web_0", "GET", "/metadata/scheduledevents?api-version=2020-07-01"),
    )
    assert result.expectations[0].message.startswith("web_0: missing-header: ")
    assert [one.ok for one in result.expectations] == [False, True]


def test_without_a_poll_nothing_is_played(service: Service) -> None:
    text = HEAD + "timeline: [{at: 10s, do: restart, machine: web_0}]\nexpect: [no-complaints]"
    result = service.play_scenario(parse(text), first_poll_timeout=0.05)
    [failure] = result.failures
    assert re.match("web_0 did not .*0.05 s$", failure)
    assert result.expectations == ()
    assert service.events == []


def test_a_client_whose_requests_are_refused_fails_with_the_reason() -> None:
    class Headless:
        def start(self, session: Session) -> None:
            assert isinstance(session, Requests)
            session.request("web_0", "GET", "/metadata/scheduledevents?api-version=2020-07-01")

        def problem(self) -> str:
            return ""

        def exit_of(self, machine: str) -> str:
            return ""

        def end(self) -> tuple[CommandExit, ...]:
            return ()

    text = HEAD + "timeline: [{at: 10s, do: restart, machine: web_0}]"
    result = run_scenario(parse(text), program=Headless(), first_poll_timeout=0.05)
    [failure] = result.failures
    assert re.match(r"web_0 sent 1 request.*\(400\).* Metadata header .*0.05 s", failure)
    assert [one.rule for one in result.verdict.wrong] == ["missing-header"]


def test_junit_has_a_case_for_each_expectation(service: Service) -> None:
    result = play(
        service,
        """
timeline: [{at: 10s, do: restart, machine: web_0, name: restart}]
expect: [{event: restart, approved: true}, {event: restart, finished: true}, {command: {exit: 0}}]
""",
    )
    suite = ElementTree.fromstring(result.junit())
    assert (suite.get("tests"), suite.get("failures")) == ("4", "1")
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["restart is approved"]
    assert float(suite.get("time", "")) < result.seconds, "it is real time that CI adds up"
    assert "not checked" in result.expectations[2].message
    assert result.as_dict()["ok"] is False


def test_a_service_with_other_machines_is_refused(service: Service) -> None:
    service.scale_set("shop", 2)
    with pytest.raises(RefusedError, match="db, web"):
        play(service, "timeline: [{at: 10s, do: restart, machine: web_0}]")


def test_a_service_that_has_the_machines_keeps_them(service: Service) -> None:
    service.scale_set("web", 3)
    service.scale_set("other", 1)
    text = HEAD.replace(
        "    - {name: db, kind: standalone, machines: [{name: db, host: rack-2}]}\n", ""
    )
    text += "timeline: [{at: 10s, do: restart, machine: web_0}]"
    assert service.play_scenario(parse(text), client=Client(service)).ok
    assert "other_0" in service.addresses


def test_a_scenario_is_played_in_real_time_with_durations_divided() -> None:
    text = """
timeline: [{at: 10s, do: restart, machine: web_0, name: restart}]
expect: [{event: restart, approved: {within: 1m}}, {event: restart, finished: true}]
"""
    found: list[Service] = []
    client: list[Client] = []

    def ask() -> None:
        client[0]()

    def prepared(service: Service) -> None:
        found.append(service)
        client.append(Client(service, approves=True))

    result = run_scenario(parse(HEAD + text), speed=20_000, client=ask, on_ready=prepared)
    assert result.check().ok
    assert client[0].saw[0] == ("Reboot", "Scheduled")


def test_an_async_client_shares_its_loop_with_the_play() -> None:
    async def test() -> Result:
        scenario = parse(HEAD + "timeline: [{at: 10s, do: restart, machine: web_0}]")
        async with Service(scenario.fleet) as service:
            over = asyncio.Event()
            saw: list[str] = []

            async def client() -> None:
                while not over.is_set():
                    events = (await service.to_thread(service.document, "web_0"))["Events"]
                    saw.extend(event["EventStatus"] for event in events)

            asking = asyncio.get_running_loop().create_task(client())
            result = await service.to_thread(service.play_scenario, scenario, timeout=1.0)
            over.set()
            await asking
            assert {"Scheduled", "Started"} <= set(saw)
            return result

    assert asyncio.run(test()).ok


FAILS = """\
timeline: [{at: 10s, do: restart, machine: web_0, name: restart}]
expect:
  - {event: restart, seen: true}
  - {event: restart, approved: {by: web_0}}
"""


def test_the_trace_ends_with_the_result(service: Service) -> None:
    result = play(service, FAILS)
    line = result.lines[-1]
    assert (line["kind"], line["scenario"], line["ok"]) == ("scenario", "trial", False)
    assert [item["ok"] for item in line["expectations"]] == [True, False]
    assert line["expectations"][1]["message"] == result.expectations[1].message
    assert result.verdict.ok, "no rule is broken, and still it failed"
    assert any("scenario trial failed" in remark for remark in service.verdict().remarks)
    assert "scenario trial failed" in service.report()


def test_a_scenario_without_expectations_passes_with_a_note(service: Service) -> None:
    result = play(service, "timeline: [{at: 10s, do: restart, machine: web_0}]")
    assert result.ok
    assert re.match("scenario trial: passed, .*expects nothing", str(result))
    suite = ElementTree.fromstring(result.junit())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "0", "1")
    skipped = suite.find("testcase/skipped")
    assert skipped is not None
    assert "it expects nothing" in skipped.get("message", "")


def test_a_scenario_that_could_not_be_played_has_failed(service: Service) -> None:
    result = service.play_scenario(parse(HEAD + FAILS), first_poll_timeout=0.05)
    assert not result.ok
    assert str(result).startswith("scenario trial: failed")
    assert "expects nothing" not in str(result) + result.junit()
    assert result.problems
    assert result.lines[-1]["problems"] == result.problems


def test_a_loaded_scenario_has_an_address_before_time_runs() -> None:
    with Service() as service:
        loaded = service.load_scenario(parse(HEAD + FAILS))
        assert loaded.machine.name == "web_0"
        assert [machine.name for machine in loaded.machines] == ["web_0"]
        assert loaded.scenario.name == "trial"
        assert loaded.machine.url.startswith("http://127.")
        before = service.clock.now
        assert loaded.machine.document()["Events"] == []
        client = Client(service, approves=True)
        result = loaded.play(client=client)
        assert result.ok, str(result)
        assert service.clock.now > before
        with pytest.raises(RefusedError, match=r"'trial' .*played"):
            loaded.play(client=client)


def test_polls_since_a_scenario_was_loaded_count_as_first_polls() -> None:
    with Service() as service:
        loaded = service.load_scenario(parse(HEAD + FAILS))
        urlopen(Request(f"{loaded.machine.url}{POLL}", headers={"Metadata": "true"})).close()
        result = loaded.play(first_poll_timeout=30, timeout=0.05)
    assert not result.problems, "it has polled before"


def test_a_refused_approval_is_named_when_an_approval_is_missing(service: Service) -> None:
    def client() -> None:
        if service.get("web_0").json()["Events"]:
            service.post("web_0", b'{"StartRequests": 1}')

    result = play(
        service,
        """
timeline: [{at: 1m, do: schedule, type: Reboot, machine: web_0, name: restart}]
expect: [{event: restart, approved: {by: web_0}}, {event: restart, approved: {by: any}}]
""",
        client,
    )
    for expectation in result.expectations:
        assert not expectation.ok
        assert re.search(r"web_0 sent .*refused \(400.*StartRequests", expectation.message)


def test_a_scenario_that_does_not_end_is_stopped_after_the_time_limit() -> None:
    text = """
timeline:
  - {at: 0s, do: schedule, type: Reboot, machine: web_0, notice: 1h, name: restart}
  - {when-approved: restart, do: restart, machine: web_1}
"""
    result = run_scenario(parse(HEAD + text), speed=1.0, client=lambda: None, time_limit=0)
    assert not result.ok
    [problem] = result.problems
    assert "after 0 s" in problem
