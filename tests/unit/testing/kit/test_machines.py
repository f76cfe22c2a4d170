"""What can happen to a machine or a host, in one word each, and what a machine can ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forewarn.node.listening.sockets import has_many_loopback_addresses
from forewarn.testing import RefusedError, Service

GONE = 404


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


def test_every_verb_raises_the_event_of_azure(service: Service) -> None:
    web = service.scale_set("web", 6, terminate_notice="5m")
    spot = service.scale_set("spot", 1, spot=True)
    happened = [
        web[0].restart(),
        web[1].redeploy(),
        spot[0].evict(),
        web[2].delete(),
        web[3].fail(),
        web[4].freeze(duration=5),
        web[5].schedule("Reboot", notice="20m", description="soon", source="Platform"),
    ]
    assert [(e.type, e.source, e.status, *e.resources) for e in happened] == [
        ("Reboot", "User", "Scheduled", "web_0"),
        ("Redeploy", "User", "Scheduled", "web_1"),
        ("Preempt", "Platform", "Scheduled", "spot_0"),
        ("Terminate", "Platform", "Scheduled", "web_2"),
        ("Redeploy", "Platform", "Started", "web_3"),
        ("Freeze", "Platform", "Scheduled", "web_4"),
        ("Reboot", "Platform", "Scheduled", "web_5"),
    ]
    notices = [(e.not_before - service.clock.now).total_seconds() / 60 for e in happened]
    assert notices == [15, 10, 0.5, 5, 0, 15, 20]
    assert (happened[5].duration, happened[6].description) == (5, "soon")
    assert service.events == happened


def test_event_types_are_read_in_any_case_and_unknown_values_refused(
    service: Service,
) -> None:
    web = service.scale_set("web", 1)[0]
    assert web.schedule("freeze").type == "Freeze"  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=r"type 'Boot'.*Freeze"):
        web.schedule("Boot")  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=r"Platform or User.*'Cloud'"):
        web.schedule("Reboot", source="Cloud")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"'notic'.*notice, not_before"):
        web.schedule("Reboot", notic="20m")  # type: ignore[call-arg]
    with pytest.raises(RefusedError, match=r"'soon'.*duration"):
        web.schedule("Reboot", notice="soon")
    with pytest.raises(RefusedError, match=r"15 min of notice.* 1 min"):
        web.schedule("Reboot", notice="1m")
    assert web.schedule("Reboot", notice="1m", short_notice=True).status == "Scheduled"
    with pytest.raises(RefusedError, match="spot machine"):
        web.evict()


def test_reading_the_document_of_a_machine_is_not_a_poll(service: Service) -> None:
    web = service.scale_set("web", 2)
    event = web[0].restart()
    assert web[1].events == web.events == [event]
    assert event.seen_by == {}
    assert web[1].document()["Events"][0]["EventId"] == event.id
    assert event.seen_by == {"web_1": service.clock.now}


def test_a_machine_sends_exactly_the_request_it_is_given(service: Service) -> None:
    web = service.scale_set("web", 2)
    event = web[0].restart()
    assert web[0].get("2017-08-01").json()["Events"][0]["Resources"] == ["web_0"]
    assert web[0].request("GET", "/metadata/scheduledevents?api-version=2020-07-01").status == 400
    assert web[0].instance()["compute"]["name"] == "web_0"
    assert web[0].instance("compute/osProfile") == {
        "adminUsername": "",
        "computerName": "web000000",
        "disablePasswordAuthentication": "",
    }
    assert web[1].approve(event).status == 200
    assert (event.status, event.approved_by) == ("Started", "web_1")
    assert web[1].post(b'{"StartRequests":[{"EventId":"nobody knows"}]}').status == 400


def test_a_machine_reports_ready_and_withdraws_it(service: Service) -> None:
    web = service.scale_set("web", 2)
    event = web[0].restart()
    web[0].report_ready(event, "drained")
    assert list(event.ready) == ["web_0"]
    assert service.verdict().course("web_0", event).prepared is not None, "it is a request"
    web[0].report_ready(event, ready=False)
    assert not event.ready
    with pytest.raises(RefusedError, match="machine 'web_0' was answered 404"):
        web[0].report_ready("nobody knows")


@pytest.mark.parametrize("sockets", [True, False])
def test_a_path_means_the_same_over_sockets_and_in_process(sockets: bool) -> None:
    with Service(sockets=sockets) as service:
        target = "/metadata/%73cheduledevents?api-version=2020-07-01"
        asked = service.machine("jumpbox").request("GET", target, {"Metadata": "true"})
        assert asked.status == 200


def test_a_machine_that_was_evicted_is_gone_until_it_is_restored(service: Service) -> None:
    spot = service.scale_set("spot", 2, spot=True)[0]
    spot.evict().until_over()
    assert not spot.alive
    assert spot.get().status == GONE
    with pytest.raises(RefusedError, match="machine 'spot_0' was answered 404"):
        spot.document()
    assert spot.restore().alive
    assert spot.document()["Events"] == []


def test_a_group_is_evicted_or_scaled_in_as_one(service: Service) -> None:
    spot = service.scale_set("spot", 3, spot=True)
    assert [e.resources for e in spot.evict()] == [("spot_0",), ("spot_1",), ("spot_2",)]
    web = service.scale_set("web", 4, terminate_notice="5m")
    assert [e.resources for e in web.scale_in(2)] == [("web_3",), ("web_2",)]
    assert [e.resources for e in web.scale_in(to=1)] == [("web_1",)]
    assert {e.type for e in web.events} == {"Terminate"}
    sql = service.availability_set("sql", 2)
    assert [e.resources for e in sql.schedule("Freeze")] == [("sql-0",), ("sql-1",)]


def test_maintenance_of_a_host_is_carried_out_once_for_all_its_machines(service: Service) -> None:
    service.scale_set("web", 2, hosts=["rack-1", "rack-2"])
    service.machine("jumpbox", hosts=["rack-1"])
    rack = service.host("rack-1")
    events = rack.maintain("Reboot", notice="1h", description="a new kernel")
    assert [(e.type, e.resources, e.description) for e in events] == [
        ("Reboot", ("jumpbox",), "a new kernel"),
        ("Reboot", ("web_0",), "a new kernel"),
    ]
    assert rack.events == list(events)
    with service.during(*events):
        assert {event.status for event in events} == {"Started"}
    assert rack.events == []


def test_a_host_is_emptied_degrades_fails_and_is_repaired(service: Service) -> None:
    web = service.scale_set("web", 2, hosts=["rack-1", "rack-2"])
    service.hosts("spare")
    rack = service.host("rack-1")
    (moved,) = rack.maintain("live-migration")
    moved.until_over()
    assert (moved.type, web[0].host, rack.machines) == ("Freeze", "spare", [])
    spare = service.host("spare")
    (planned,) = spare.degrade()
    assert (planned.not_before - service.clock.now).days == 7
    assert (spare.health, planned.type) == ("degraded", "Redeploy")
    spare.repair()
    assert (spare.health, planned.status) == ("healthy", "Withdrawn")
    (struck,) = spare.fail("smoke")
    assert (spare.health, struck.status) == ("failed", "Started")
    with pytest.raises(RefusedError, match=r"Freeze, Reboot, live-migration.*'x'"):
        spare.maintain("x")  # type: ignore[arg-type]


def test_the_environment_of_a_program_has_the_address_of_its_machine(service: Service) -> None:
    web = service.scale_set("web", 2)
    assert web[1].env == {"FOREWARN_METADATA": web[1].url}
    if has_many_loopback_addresses():
        assert web[1].url.startswith(f"http://{web[1].address}:")
    assert len({service.url(), web[0].url, web[1].url}) == 3
