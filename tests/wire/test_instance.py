"""Beside the events: the instance tree and the list of versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forewarn.testing import Service
from helpers.endpoint import METADATA, NO_METADATA_HEADER, NOT_FOUND, Caller, Guest
from helpers.raw_http import request

FLEET = """
location: northland
resource_group: shop
subscription: 11111111-2222-4333-8444-555555555555
groups:
  - name: web
    kind: scale-set
    zone: "3"
    machines:
      - {name: web_0, update_domain: 4, fault_domain: 2, spot: true,
         tags: {team: shop, tier: "1"}}
      - {name: web_46, update_domain: 1, fault_domain: 1,
         vm_id: 9b1f2f0e-6c0f-4c55-8a41-2f6f6cf0a1d7}
  - name: db
    kind: standalone
    machines: [{name: db, computer_name: db.example.org}]
"""
NEWEST = "2025-04-07"
SENT_BY_CLIENTS = [
    "2017-08-01",
    "2019-06-01",
    "2019-08-01",
    "2020-09-01",
    "2021-02-01",
    "2021-12-13",
    "2025-04-07",
]
GUEST = "web_0"
TEXT = f"api-version={NEWEST}&format=text"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True, front=True) as service:
        yield service


@pytest.fixture(scope="module")
def spot(service: Service) -> Guest:
    return Guest(service, "web_0")


def test_the_whole_instance_tree_is_answered(guest: Caller) -> None:
    answer = guest.instance("", f"api-version={NEWEST}")
    assert answer.line == "HTTP/1.1 200 OK"
    assert answer.header("content-type") == "application/json; charset=utf-8"
    assert answer.header("server").startswith("IMDS/")
    tree = answer.json()
    assert list(tree) == ["compute", "network"]
    assert tree["compute"]["name"] == guest.name


@pytest.mark.parametrize("version", SENT_BY_CLIENTS)
@pytest.mark.parametrize("format", ["", "&format=json", "&format=JSON"])
def test_every_version_used_by_clients_is_answered(
    guest: Caller, version: str, format: str
) -> None:
    answer = guest.instance("", f"api-version={version}{format}")
    assert answer.status == 200
    assert answer.json()["compute"]["name"] == guest.name


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "web_0"),
        ("vmScaleSetName", "web"),
        ("platformUpdateDomain", "4"),
        ("platformFaultDomain", "2"),
        ("osProfile/computerName", "web000000"),
        ("resourceGroupName", "shop"),
        ("subscriptionId", "11111111-2222-4333-8444-555555555555"),
        ("location", "northland"),
        ("zone", "3"),
        ("priority", "Spot"),
        ("tags", "team:shop;tier:1"),
    ],
)
def test_values_that_clients_read_are_plain_text(spot: Guest, path: str, value: str) -> None:
    answer = spot.instance(f"/compute/{path}", TEXT)
    assert answer.status == 200
    assert answer.text == value, "bare, without quotes or a newline"
    assert answer.header("content-type").startswith("text/plain")


def test_a_member_of_a_scale_set_counts_in_base_36(service: Service) -> None:
    member = Guest(service, "web_46")
    assert member.instance("/compute/name", TEXT).body == b"web_46"
    assert member.instance("/compute/osProfile/computerName", TEXT).body == b"web00001a"
    assert member.instance("/compute/vmId", TEXT).text == "9b1f2f0e-6c0f-4c55-8a41-2f6f6cf0a1d7"


def test_machines_of_a_placement_group_share_its_id(service: Service, spot: Guest) -> None:
    ids = {
        guest.instance("/compute/placementGroupId", TEXT).text
        for guest in (spot, Guest(service, "web_46"))
    }
    assert len(ids) == 1
    assert ids != {""}


def test_what_does_not_apply_is_an_empty_string(service: Service) -> None:
    compute = Guest(service, "db").instance("/compute", f"api-version={NEWEST}").json()
    for field in ("vmScaleSetName", "placementGroupId", "zone", "priority", "evictionPolicy"):
        assert compute[field] == ""
    assert (compute["tags"], compute["tagsList"]) == ("", [])
    assert compute["osProfile"]["computerName"] == "db.example.org"


def test_primitives_are_strings_and_the_rest_keeps_its_shape(spot: Guest) -> None:
    tree = spot.instance("", f"api-version={NEWEST}").json()
    leaves = list(_leaves(tree))
    assert leaves
    assert all(isinstance(leaf, str) for leaf in leaves)
    assert tree["compute"]["tagsList"] == [
        {"name": "team", "value": "shop"},
        {"name": "tier", "value": "1"},
    ]


def _leaves(node: object) -> Iterator[object]:
    if isinstance(node, dict):
        for child in node.values():
            yield from _leaves(child)
    elif isinstance(node, list):
        for child in node:
            yield from _leaves(child)
    else:
        yield node


def test_subtrees_and_indexes_are_paths(spot: Guest) -> None:
    tree = spot.instance("", f"api-version={NEWEST}").json()
    for path, part in [
        ("/compute", tree["compute"]),
        ("/compute/", tree["compute"]),
        ("/compute/osProfile", tree["compute"]["osProfile"]),
        ("/compute/tagsList/1", tree["compute"]["tagsList"][1]),
        ("/network", tree["network"]),
        ("/network/interface", tree["network"]["interface"]),
        ("/network/interface/0", tree["network"]["interface"][0]),
        ("/network/interface/0/ipv4", tree["network"]["interface"][0]["ipv4"]),
    ]:
        answer = spot.instance(path, f"api-version={NEWEST}")
        assert (answer.status, answer.json()) == (200, part)


@pytest.mark.parametrize("query", [f"api-version={NEWEST}", f"api-version={NEWEST}&format=json"])
def test_a_leaf_is_text_only(guest: Caller, query: str) -> None:
    answer = guest.instance("/compute/name", query)
    assert (answer.status, answer.body) == (400, b'{ "error": "Bad request" }')
    assert answer.header("content-type") == "application/json; charset=utf-8"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/compute/nothing",
        "/compute/name/more",
        "/network/interface/7",
        "/compute//name",
    ],
)
def test_an_unknown_element_is_not_found(guest: Caller, path: str) -> None:
    for query in (f"api-version={NEWEST}", TEXT):
        answer = guest.instance(path, query)
        assert (answer.status, answer.body) == (404, NOT_FOUND)


def test_a_field_newer_than_the_version_is_not_found(guest: Caller) -> None:
    assert "tagsList" not in guest.instance("/compute", "api-version=2017-08-01").json()
    assert guest.instance("/compute/tagsList", "api-version=2017-08-01").status == 404


@pytest.mark.parametrize(
    "query", ["", "api-version=", "api-version=latest", "api-version=2020-07-01"]
)
def test_an_unknown_version_is_answered_with_the_newest_three_of_the_instance_tree(
    guest: Caller, query: str
) -> None:
    answer = guest.instance("", query)
    assert answer.status == 400
    assert answer.body == (
        b'{"error":"Bad request. api-version is invalid or was not specified in the request.'
        b' For more information refer to aka.ms/azureimds",'
        b'"newest-versions":["2025-04-07","2024-07-17","2024-03-15"]}'
    )


@pytest.mark.parametrize("path", ["/metadata/instance", "/metadata/versions"])
def test_the_rules_for_requests_apply_to_the_instance_tree(guest: Caller, path: str) -> None:
    target = f"{path}?api-version={NEWEST}"
    answer = guest.say(request("GET", target))
    assert (answer.status, answer.body) == (400, NO_METADATA_HEADER)
    assert guest.say(request("GET", target, METADATA, "X-Forwarded-For: 10.0.0.1")).status == 400
    assert guest.say(request("GET", f"{target}&a=1&a=1", METADATA)).status == 400
    answer = guest.say(request("HEAD", target, METADATA), to_head=True)
    assert (answer.status, answer.header("allow")) == (405, "GET")


def test_the_versions_are_listed_in_ascending_order_and_need_no_version(guest: Caller) -> None:
    answer = guest.say(request("GET", "/metadata/versions", METADATA))
    assert answer.status == 200
    assert answer.header("content-type") == "application/json; charset=utf-8"
    assert answer.body.startswith(b'{"apiVersions":["2017-03-01",')
    listed = answer.json()["apiVersions"]
    assert listed == sorted(set(listed))
    assert listed[-1] == NEWEST
    assert set(SENT_BY_CLIENTS) <= set(listed)


def test_every_version_listed_is_taken(guest: Caller) -> None:
    listed = guest.say(request("GET", "/metadata/versions", METADATA)).json()["apiVersions"]
    for version in listed:
        assert guest.instance("/compute", f"api-version={version}").status == 200


def test_the_path_of_the_instance_tree_is_found_in_any_letter_case(guest: Caller) -> None:
    answer = guest.say(request("GET", f"/Metadata/Instance?api-version={NEWEST}", METADATA))
    assert answer.status == 200
