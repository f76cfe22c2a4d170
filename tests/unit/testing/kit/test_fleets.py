"""A fleet in one line: every kind of group, growing, and what makes no sense."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.testing import SAMPLE, RefusedError, Service


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


def test_a_service_begins_without_machines(service: Service) -> None:
    assert service.machines == []
    assert service.events == []


def test_a_fleet_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(SAMPLE)
    with Service(file) as service, Service(SAMPLE) as same:
        assert service.addresses == same.addresses != {}


def test_a_scale_set_is_its_machines_by_number_and_by_name(service: Service) -> None:
    web = service.scale_set("web", 3)
    assert web.names == ("web_0", "web_1", "web_2")
    assert len(web) == 3
    assert web[1] == web["web_1"] == service["web_1"]
    assert [machine.name for machine in web[1:]] == ["web_1", "web_2"]
    assert list(web) == service.machines
    assert {machine.group for machine in web} == {"web"}
    assert web[2].instance("compute")["vmScaleSetName"] == "web"


def test_properties_of_a_group_apply_to_its_machines(service: Service) -> None:
    web = service.scale_set(
        "web",
        4,
        spot=True,
        update_domains=2,
        hosts=["rack-1", "rack-2"],
        labels={"tier": "web"},
        tags={"team": "shop"},
    )
    assert [machine._record.update_domain for machine in web] == [0, 1, 0, 1]
    assert [machine.host for machine in web] == ["rack-1", "rack-2", "rack-1", "rack-2"]
    assert service.host("rack-2").machines == [web[1], web[3]]
    compute = web[0].instance("compute")
    assert (compute["priority"], compute["tags"]) == ("Spot", "team:shop")
    group = service._session.node.machine_index.group("web")
    assert group is not None
    assert group.labels == {"tier": "web"}


def test_machines_are_spread_over_five_domains_by_default(service: Service) -> None:
    domains = [machine._record.update_domain for machine in service.scale_set("web", 7)]
    assert domains == [0, 1, 2, 3, 4, 0, 1]


def test_every_kind_of_group_names_its_machines_as_the_cloud_does(service: Service) -> None:
    assert service.availability_set("sql", 2).names == ("sql-0", "sql-1")
    zone = service.availability_zone("zone-1", "a", "b", zone="1")
    assert zone.names == ("a", "b")
    assert zone[0].instance("compute")["zone"] == "1"
    shop = service.cloud_service("shop", {"FrontEnd": 2, "Worker": 1})
    assert shop.names == ("FrontEnd_IN_0", "FrontEnd_IN_1", "Worker_IN_0")
    jumpbox = service.machine("jumpbox", hosts=["rack-1"])
    assert (jumpbox.name, jumpbox.group, jumpbox.host) == ("jumpbox", "jumpbox", "rack-1")
    kinds = {group.name: group.kind.value for group in service._session.node.machine_index.groups()}
    assert kinds == {
        "sql": "availability-set",
        "zone-1": "availability-zone",
        "shop": "cloud-service",
        "jumpbox": "standalone",
    }


def test_a_group_defined_again_with_more_machines_grows_and_keeps_the_others(
    service: Service,
) -> None:
    web = service.scale_set("web", 2, update_domains=1, terminate_notice="5m")
    event = web[0].restart()
    before = [machine._record for machine in web]
    grown = service.scale_set("web", 4)
    assert grown.names == ("web_0", "web_1", "web_2", "web_3")
    assert [machine._record for machine in grown[:2]] == before
    assert event.status == "Scheduled"
    assert grown[3].document()["Events"][0]["EventId"] == event.id
    assert grown[3].delete().status == "Scheduled", "the group is still told of deletes"


def test_a_large_scale_set_is_several_placement_groups(service: Service) -> None:
    big = service.scale_set("big", 250, spot=True)
    assert len(big) == 250
    assert [big[n].group for n in (0, 99, 100, 200)] == ["big", "big", "big-2", "big-3"]
    assert big[249].instance("compute")["vmScaleSetName"] == "big"
    assert len(big.evict()) == len(big.events) == 250


def test_a_group_is_enabled_from_the_start_unless_disabled(service: Service) -> None:
    asleep = service.scale_set("asleep", 1, enabled=False)[0]
    assert asleep.restart().status == "Started", "nobody has asked, so nobody is told"
    assert service.scale_set("awake", 1)[0].restart().status == "Scheduled"


def test_one_host_may_be_given_without_a_list(service: Service) -> None:
    web = service.scale_set("web", 2, hosts="rack-1", auto_approve="Reboot")
    assert [machine.host for machine in web] == ["rack-1", "rack-1"]
    assert web[0].restart().status == "Started"


def test_hosts_may_have_no_machines(service: Service) -> None:
    spare, other = service.hosts("spare", "other")
    assert (spare.machines, spare.health) == ([], "healthy")
    assert service.hosts("spare")[0].name == "spare"
    assert other.explain().startswith("healthy; no machine")


def refused(service: Service, words: str) -> pytest.RaisesExc[RefusedError]:
    return pytest.raises(RefusedError, match=words)


def test_invalid_groups_are_refused_and_change_nothing(service: Service) -> None:
    service.scale_set("web", 3, hosts=["rack-1"])
    before = service._session.node.fleet_apply.current()
    with refused(service, "with delete"):
        service.scale_set("web", 2)
    with refused(service, "at least one machine"):
        service.scale_set("none", 0)
    with refused(service, "at most 10,000 machines"):
        service.scale_set("many", 10_001)
    with refused(service, "one update domain"):
        service.scale_set("flat", 2, update_domains=0)
    with refused(service, "group 'web' exists.*scale-set"):
        service.availability_set("web", 5)
    with refused(service, "group 'web' exists"):
        service.machine("web")
    with refused(service, "machine 'web_0' exists"):
        service.machine("web_0")
    with refused(service, "'b ad'.*valid name"):
        service.scale_set("b ad", 2)
    with refused(service, "'{0}'.*valid name"):
        service.scale_set("{0}", 2)
    with refused(service, "terminate_notice: .*5 min to 15 min.* 1 min"):
        service.scale_set("told", 2, terminate_notice="1m")
    with refused(service, "type 'Boot'.*Freeze"):
        service.scale_set("auto", 2, auto_approve=["Boot"])  # type: ignore[list-item]
    with refused(service, "'a b'.*valid name"):
        service.hosts("a b")
    with pytest.raises(TypeError, match="spot, update_domains, hosts"):
        service.scale_set("slip", 2, sopt=True)  # type: ignore[call-arg]
    assert service._session.node.fleet_apply.current() == before


def test_an_unknown_name_is_refused_with_a_suggestion(service: Service) -> None:
    with refused(service, "no machine 'web_0': .*none yet"):
        service["web_0"]
    service.scale_set("web", 2, hosts=["rack-1"])
    with refused(service, "no machine 'wbe_0'.*'web_0'"):
        service["wbe_0"]
    with refused(service, "no host 'rack-2'"):
        service.host("rack-2")
    with pytest.raises(KeyError, match=r"'web_7' in 'web'.*web_0, web_1"):
        service.scale_set("web", 2)["web_7"]
