"""Queries of Azure Resource Graph, by which chaos tools choose machines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.arm.routes import resource_graph
from forewarn.core.access import Role
from forewarn.support import guard
from forewarn.testing import Service
from forewarn.testing.kit.inprocess import exchange
from helpers.arm import COMPUTE, HOST, SUBSCRIPTION, VERSION, Arm, app_of, code, message
from helpers.token_api import token

QUERIES = "/providers/Microsoft.ResourceGraph/resources"
MACHINES = "Resources | where type=~'Microsoft.Compute/virtualMachines'"
SCALE_SETS = "microsoft.compute/virtualmachinescalesets"
ZEROS = "00000000-0000-0000-0000-000000000000"
FLEET = """
groups:
  - {name: web, kind: scale-set, machines: [{name: web_0}, {name: web_1}]}
  - name: sql
    kind: availability-set
    machines: [{name: sql-0, tags: {team: shop}}, {name: SQL-1, tags: {my-team: x and y}}]
  - {name: far, kind: standalone, resource_group: Far, machines: [{name: far-0}]}
  - name: other
    kind: standalone
    subscription: 11111111-1111-1111-1111-111111111111
    machines: [{name: other-0}]
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET) as service:
        yield service


@pytest.fixture(scope="module")
def arm(service: Service) -> Arm:
    return Arm(service)


def query(arm: Arm, text: str, **body: Any) -> Any:
    answer = arm.call("POST", QUERIES, {"query": text, **body})
    assert answer.status == 200, answer
    return answer.json()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("", ["far-0", "sql-0", "SQL-1", "other-0"]),
        ("| where resourceGroup=='far'", ["far-0"]),
        ("| where resourceGroup=='Far'", []),  # Azure shows it in lower case
        ('| where resourceGroup =~ "FAR" and name=="far-0"', ["far-0"]),
        ("| where name == 'sql-1'", []),
        ("| where name =~ 'sql-1' | where tags['my-team'] == 'x and y'", ["SQL-1"]),
        ("|where tags.team=='shop'|take 2", ["sql-0"]),
        ("| where tags.team != 'shop' and name !~ 'sql-1'", ["far-0", "other-0"]),
        ("| WHERE name contains 'QL-' | LIMIT 1", ["sql-0"]),
        ("| where name startswith 'far' and name endswith '0'", ["far-0"]),
        ("| where name in ('far-0', 'sql-1')", ["far-0"]),
        ("| where name in~ ('far-0', 'sql-1')", ["far-0", "SQL-1"]),
        ("| where subscriptionId startswith '1111'", ["other-0"]),
        ("| where name == ''", []),
        ("| take 0", []),
        ("| where name == 'far-0' or not(name startswith 's' or name =~ 'other-0')", ["far-0"]),
    ],
)
def test_a_query_chooses_resources(arm: Arm, steps: str, expected: list[str]) -> None:
    found = query(arm, MACHINES + steps)
    assert [row["name"] for row in found["data"]] == expected
    assert found["totalRecords"] == found["count"] == len(expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "expected a query"),
        (
            "virtualMachines",
            "at character 1: unknown table 'virtualMachines'; there are Resources, Maint",
        ),
        ("Resources | where name = 'far-0'", "at character 24: unknown comparison '='"),
        ("Resources | project-away id", "at character 13: unknown operator 'project-away'"),
        ("Resources | where Name == computer", "at character 27: unknown column 'computer'"),
        ("Resources | where name == 'far-0' and", "at character 38: expected a column"),
        ("Resources " + " " * 10_000, "at most 10,000 characters"),
    ],
)
def test_any_other_query_is_refused_with_the_reason(
    arm: Arm, text: str | None, reason: str
) -> None:
    answer = arm.call("POST", QUERIES, {"query": text})
    assert code(answer) == (400, "BadRequest")
    assert reason in message(answer)


def test_a_query_of_a_megabyte_is_refused(arm: Arm) -> None:
    answer = arm.call("POST", QUERIES, {"query": "Resources" + " " * 1_000_000})
    assert code(answer) == (400, "BadRequest")
    answer = arm.call("POST", QUERIES, {"query": "Resources" + " " * 2_000_000})
    assert code(answer) == (413, "RequestEntityTooLarge")


def test_an_answer_of_very_many_columns_is_refused(
    arm: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_graph, "MAX_BYTES", 100_000)
    columns = ", ".join(f"p{number} = properties" for number in range(50))
    text = f"Resources | project {columns}"
    answer = arm.call("POST", QUERIES, {"query": text})
    assert code(answer) == (400, "BadRequest")
    assert "set $top" in message(answer)
    assert query(arm, f"{text} | count")["data"] == [{"Count": 7}]
    assert query(arm, f"{text} | take 1")["count"] == 1


def test_a_query_that_takes_long_is_refused(arm: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_graph, "TURN", -1.0)  # it is always over
    monkeypatch.setattr(resource_graph, "MAX_SECONDS", -1.0)
    answer = arm.call("POST", QUERIES, {"query": MACHINES})
    assert code(answer) == (400, "BadRequest")
    assert "choose fewer" in message(answer)


def test_other_requests_are_answered_while_a_query_runs(
    service: Service, arm: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_graph, "TURN", -1.0)
    turns: list[int] = []

    async def both() -> None:
        over = asyncio.Event()

        async def other() -> None:
            while not over.is_set():
                turns.append(len(turns))
                await guard.pause(0)

        tasks = guard.Tasks()
        task = tasks.start(other(), "another request")
        body = json.dumps({"query": "Resources | sort by name | summarize count() by type"})
        headers = {"Host": HOST, "Authorization": f"Bearer {arm._token}"}
        target = f"{QUERIES}?api-version={VERSION}"
        answer = await exchange(app_of(service), HOST, "POST", target, headers, body.encode())
        over.set()
        await task
        assert answer.status == 200, answer

    service._session.run(both())
    assert len(turns) >= 8  # one for each resource


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "summarize count() by type | order by type asc",
            [
                ("microsoft.compute/availabilitysets", 1),
                ("microsoft.compute/hostgroups", 1),
                ("microsoft.compute/virtualmachines", 4),
                ("microsoft.compute/virtualmachinescalesets", 1),
            ],
        ),
        (
            "where type =~ 'Microsoft.Compute/virtualMachines'"
            " | project name, properties.storageProfile.osDisk.osType | top 2 by name desc",
            [("sql-0", "Linux"), ("other-0", "Linux")],
        ),
        (
            "where type == 'microsoft.compute/virtualmachines' | summarize count()"
            " by PowerState = tostring(properties.extended.instanceView.powerState.code)",
            [("PowerState/running", 4)],
        ),
        (
            "where type has 'virtualMachineScaleSets'"
            " | project sku.capacity, zones, kind, identity",
            [(2, None, "", None)],
        ),
        ("where properties.availabilitySet.id has 'sql' | count", [(2,)]),
        (
            "where type endswith 'availabilitySets' | project properties.virtualMachines[1].id",
            [(f"{COMPUTE}/virtualMachines/SQL-1",)],
        ),
    ],
)
def test_resources_have_what_azure_shows_of_them(arm: Arm, text: str, expected: Any) -> None:
    found = query(arm, f"Resources | {text}")
    assert [tuple(row.values()) for row in found["data"]] == expected


# From Microsoft's pages of sample queries and the samples of its SDKs, with names of this fleet.
PUBLISHED: list[tuple[str, Any]] = [
    ("summarize count()", [(7,)]),
    ("Resources | summarize count()", [(7,)]),
    ("project name, type | where type =~ 'microsoft.compute/hostGroups' | count", [(1,)]),
    (
        "Resources\n| project name, location, type\n"
        "| where type =~ 'Microsoft.Compute/virtualMachines'\n| order by name desc | limit 1",
        [("sql-0", "local", "microsoft.compute/virtualmachines")],
    ),
    ("Resources | where type contains 'scaleset' | distinct type", [(SCALE_SETS,)]),
    (
        "Resources\n| where type=~ 'microsoft.compute/virtualmachinescalesets'\n"
        "| where name contains 'web'\n| project subscriptionId, name, location, resourceGroup,"
        " Capacity = toint(sku.capacity), Tier = sku.name\n| order by Capacity desc",
        [(ZEROS, "web", "local", "forewarn", 2, "Standard_D2s_v5")],
    ),
    ("Resources | where tags.team=~'Shop' | project name", [("sql-0",)]),
    (
        "Resources | where tags['my-team']=='x and y' | project name, tags",
        [("SQL-1", {"my-team": "x and y"})],
    ),
    (
        f"{MACHINES} | extend os = properties.storageProfile.osDisk.osType"
        " | summarize count() by tostring(os)",
        [("Linux", 4)],
    ),
    (
        f"{MACHINES} | summarize count() by tostring(properties.storageProfile.osDisk.osType)",
        [("Linux", 4)],
    ),
    (
        "Resources | project id, name, type, location | where type =~"
        " 'Microsoft.Compute/virtualMachines' | summarize count() by location | top 3 by count_",
        [("local", 4)],
    ),
    (
        "Resources | where isnotempty(tags.team) | summarize Number=count() by subscriptionId",
        [(ZEROS, 1)],
    ),
    (
        f"{MACHINES} and name startswith 'sql' and isnotnull(properties.availabilitySet)"
        " | extend set = tostring(split(tolower(properties.availabilitySet.id), '/')[8])"
        " | project name, set | order by tolower(name) asc",
        [("sql-0", "sql"), ("SQL-1", "sql")],
    ),
    (
        f"// by size\n{MACHINES}\n| extend vmSize = properties.hardwareProfile.vmSize //"
        " of all\n| summarize VMs = count() by tostring(vmSize), location | project VMs, location",
        [(4, "local")],
    ),
    (
        f"{MACHINES} | where properties.extended.instanceView.powerState.code has 'running' and"
        " (name in~ ('SQL-0', 'far-0') or isnull(type)) | order by name | project name",
        [("sql-0",), ("far-0",)],
    ),
    (
        f"{MACHINES} | where resourceGroup !in~ ('FAR') and not(id contains '/other-') and"
        " location in ('local', 'westus') | summarize by resourceGroup",
        [("forewarn",)],
    ),
    (
        "resources | where ['type'] == 'microsoft.compute/virtualmachines' and"
        " ['id'] contains '/resourcegroups/far' | project ['name']",
        [("far-0",)],
    ),
    (
        "resources | where id has '/providers/Microsoft.Compute/virtualMachines/' | count",
        [(4,)],
    ),
    ("resources | where id !has '/resourceGroups/forewarn/' | project name", [("far-0",)]),
    (
        "resources | where type in~ ('Microsoft.Compute/virtualMachines',"
        "'Microsoft.Compute/virtualMachineScaleSets') | summarize total = count () by type"
        " | order by total desc, type asc | take 1",
        [("microsoft.compute/virtualmachines", 4)],
    ),
    (
        f"{MACHINES} | extend Shop = tags.team =~ 'shop' | summarize count() by Shop"
        " | order by Shop asc",
        [(False, 3), (True, 1)],
    ),
    (
        f"{MACHINES} | where properties.hardwareProfile.vmSize !startswith 'Basic' and"
        " properties['extended']['instanceView'].computerName == 'far-0' | project name",
        [("far-0",)],
    ),
    (f"{MACHINES} | top 5 by name asc nulls last | summarize by subscriptionId | count", [(2,)]),
    ("Resources | where type =~ 'microsoft.storage/storageaccounts' | count", [(0,)]),
    (
        "Resources | where type has 'microsoft.compute' | distinct type, location | count",
        [(4,)],
    ),
    ("Resources | project-rename n = name", "at character 13: unknown operator"),
    ("Resources | union (Resources)", "at character 13: unknown operator 'union'"),
    ("Resources | extend n = strcat(name, '-', location)", "at character 24: unknown function"),
    ("Resources | extend s = iff(isnull(zones), 'no', 'yes')", "at character 24: unknown func"),
    ("Resources | extend c = case(name == 'a', 1, 2)", "at character 24: unknown function"),
    ("Resources | where name has_any ('sql', 'web')", "at character 24: unknown comparison"),
    ("Resources | where array_length(zones) > 1", "at character 19: unknown function"),
    ("Resources | summarize make_list(name) by type", "at character 23: expected 'count'"),
    ("Resources | summarize count(), dcount(type)", "at character 30: expected '|'"),
    ("Resources | where name == @'far'", "at character 27: expected a column"),
    ("let t = 'web'; Resources | where name == t", "at character 1: unknown table 'let'"),
    ("ResourceContainers | where name == 'a'", "at character 1: unknown table"),
    ("Resources | project-away id", "at character 13: unknown operator 'project-away'"),
    ("Resources | where name matches regex '^sql.*'", "at character 24: unknown comparison"),
    ("Resources | join (Resources) on id", "at character 13: unknown operator 'join'"),
    ("Resources | mv-expand tags", "at character 13: unknown operator 'mv-expand'"),
    ("Resources | extend d = parse_json(properties)", "at character 24: unknown function"),
    ("advisorresources | take 1", "at character 1: unknown table 'advisorresources'; there are"),
    ("Resources | summarize countif(name == '')", "at character 23: expected 'count'"),
    ("Resources | where properties.when > ago(1d)", "at character 37: unknown function 'ago'"),
]


@pytest.mark.parametrize(("text", "expected"), PUBLISHED)
def test_published_queries_are_answered_or_refused_with_their_place(
    arm: Arm, text: str, expected: Any
) -> None:
    if isinstance(expected, str):
        answer = arm.call("POST", QUERIES, {"query": text})
        assert code(answer) == (400, "BadRequest")
        assert expected in message(answer)
    else:
        assert [tuple(row.values()) for row in query(arm, text)["data"]] == expected


@pytest.mark.parametrize(
    "body",
    [
        {"options": {"$top": "all"}},
        {"options": {"$top": 0}},
        {"options": []},
        {"options": {"resultFormat": "csv"}},
        {"options": {"$skipToken": "next"}},
        {"managementGroups": ["all"]},
        {"subscriptions": SUBSCRIPTION},
        {"facets": [{"expression": "location"}]},
    ],
)
def test_other_options_are_refused(arm: Arm, body: dict[str, Any]) -> None:
    assert code(arm.call("POST", QUERIES, {"query": MACHINES, **body})) == (400, "BadRequest")


def test_a_sample_is_chosen_at_random(arm: Arm) -> None:
    chosen = query(arm, f"{MACHINES} | sample 2")["data"]
    assert len({row["name"] for row in chosen}) == 2
    assert query(arm, f"{MACHINES} | sample 9")["count"] == 4


def test_an_answer_is_a_table_if_the_request_asks_for_one(arm: Arm) -> None:
    subscriptions = [SUBSCRIPTION.rpartition("/")[2]]
    options = {"resultFormat": "table", "$top": 2}
    first = query(arm, MACHINES, subscriptions=subscriptions, options=options)
    columns = [column["name"] for column in first["data"]["columns"]]
    rows = [dict(zip(columns, row, strict=True)) for row in first["data"]["rows"]]
    assert [(row["name"], row["resourceGroup"]) for row in rows] == [
        ("far-0", "far"),
        ("sql-0", "forewarn"),
    ]
    assert (first["totalRecords"], first["resultTruncated"]) == (3, "true")
    options["$skipToken"] = first["$skipToken"]
    rest = query(arm, MACHINES, subscriptions=subscriptions, options=options)
    assert [row[1] for row in rest["data"]["rows"]] == ["SQL-1"]
    assert "$skipToken" not in rest


def test_a_limited_token_sees_its_own() -> None:
    with Service(FLEET) as service:
        token(service, "ops", Role.ADMIN)
        arm = Arm(service, token(service, "t", Role.TENANT, groups=("far",)).secret.text)
        assert [row["name"] for row in query(arm, MACHINES)["data"]] == ["far-0"]


# Events, of groups that publish them.

EVENTS = "maintenanceresources | where type == 'microsoft.maintenance/scheduledevents'"
PUBLISHING = """
groups:
  - {name: web, kind: scale-set, policy: {event_grid: true}, resource_group: Shop, zone: "2",
     machines: [{name: web_0}, {name: web_1}]}
  - {name: jump, kind: standalone, policy: {event_grid: true}, machines: [{name: jumpbox}]}
  - {name: silent, kind: standalone, machines: [{name: silent-0}]}
"""


@pytest.fixture
def publishing() -> Iterator[Service]:
    with Service(PUBLISHING) as service:
        for machine in service.machines:
            machine.get()
        yield service


def test_events_are_found_from_scheduled_to_completed(publishing: Service) -> None:
    arm = Arm(publishing)
    event = publishing["web_1"].restart()
    publishing["silent-0"].restart()
    cancelled = publishing["jumpbox"].restart()
    [row] = query(arm, f"{EVENTS} | where properties.Resources has 'web_1'")["data"]
    shop = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/Shop/providers"
    id = f"/Microsoft.Maintenance/scheduledEvents/{event.id}"
    assert row["id"] == f"{shop}/Microsoft.Compute/virtualMachineScaleSets/web/providers{id}"
    assert (row["name"], row["resourceGroup"], row["zones"]) == (event.id, "shop", ["2"])
    document = publishing["web_0"].document()["Events"][0]
    assert row["properties"] == {**document, "ScheduledEventApiVersion": "2020-07-01"}

    statuses = f"{EVENTS} | project properties.EventStatus, name | sort by name asc"
    found = {row["name"]: row for row in query(arm, statuses)["data"]}
    assert {name: row["properties_EventStatus"] for name, row in found.items()} == {
        event.id: "Scheduled",
        cancelled.id: "Scheduled",
    }
    cancelled.cancel("not today")
    event.approve()
    assert query(arm, f"{EVENTS} | where properties.EventStatus == 'Started'")["count"] == 1
    publishing.clock.advance("1h")
    found = {row["name"]: row for row in query(arm, statuses)["data"]}
    assert found[event.id]["properties_EventStatus"] == "Completed"
    assert found[cancelled.id]["properties_EventStatus"] == "Canceled"


def test_the_query_of_azures_page_about_events_is_answered(publishing: Service) -> None:
    publishing["web_1"].restart()
    found = query(
        Arm(publishing),
        "\nMaintenanceresources\n"
        '| where type == "microsoft.maintenance/scheduledevents"\n'
        "| sort by tostring(properties.EventStatus), tostring(properties.EventId) asc\n"
        "| project resourceGroup, zones, properties.EventStatus, properties.NotBefore,"
        " properties.Resources, properties.EventId, properties.TargetResourceId,"
        " properties.EventType, properties.Description\n\n",
        options={"resultFormat": "table"},
    )
    columns = [column["name"] for column in found["data"]["columns"]]
    row = dict(zip(columns, found["data"]["rows"][0], strict=True))
    assert (row["properties_EventType"], row["properties_Resources"]) == ("Reboot", ["web_1"])


# The same for events, by what is known of `web_1`, which is about to be restarted.
PUBLISHED_EVENTS: list[tuple[str, Any]] = [
    ("maintenanceresources | count", [(1,)]),
    (
        "maintenanceresources | where ['type'] == \"microsoft.maintenance/scheduledevents\""
        " | where properties.EventStatus == 'Scheduled' | project properties.EventType",
        [("Reboot",)],
    ),
    (
        f"{EVENTS} | extend status = tostring(properties.EventStatus), Type ="
        " tostring(properties.EventType) | summarize count() by status, Type",
        [("Scheduled", "Reboot", 1)],
    ),
    (
        f"{EVENTS} | where properties.Resources has 'WEB_1' and properties.EventSource =~ 'user'"
        " | project machine = properties.Resources[0], properties.DurationInSeconds",
        [("web_1", -1)],
    ),
    (
        f"{EVENTS} | where id has '/virtualMachineScaleSets/web/'"
        " | project owner = tostring(split(id, '/')[8]), resourceGroup, location",
        [("web", "shop", "local")],
    ),
    (f"{EVENTS} | where properties.DurationInSeconds == -1 | count", [(1,)]),
    (f"{EVENTS} | where properties.EventType in ('Freeze', 'Redeploy')", []),
    (f"{EVENTS} | where properties.EventStatus !in~ ('completed', 'CANCELED') | count", [(1,)]),
    (
        f"{EVENTS} | where isnotempty(properties.NotBefore) | summarize count() by location",
        [("local", 1)],
    ),
    ("maintenanceresources | where type =~ 'microsoft.maintenance/applyupdates'", []),
    ("maintenanceresources | where type contains 'configurationassignments' | count", [(0,)]),
    (
        f"{EVENTS} | where todatetime(properties.NotBefore) > now()",
        "at character 86: unknown function 'todatetime'",
    ),
    (f"{EVENTS} | mv-expand properties.Resources", "at character 80: unknown operator"),
    (
        "maintenanceresources | join kind=leftouter (resources) on $left.id == $right.id",
        "at character 24: unknown operator 'join'",
    ),
]


@pytest.mark.parametrize(("text", "expected"), PUBLISHED_EVENTS)
def test_published_queries_about_events_are_answered_or_refused(
    publishing: Service, text: str, expected: Any
) -> None:
    publishing["web_1"].restart()
    publishing["silent-0"].restart()
    arm = Arm(publishing)
    if isinstance(expected, str):
        answer = arm.call("POST", QUERIES, {"query": text})
        assert code(answer) == (400, "BadRequest")
        assert expected in message(answer)
    else:
        found = [tuple(row.values()) for row in query(arm, text)["data"]]
        assert found == expected


def test_pages_of_events_fit_together_while_events_go_on(
    publishing: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_graph, "PAGE", 2)
    arm, events = Arm(publishing), []
    for number in range(7):
        events.append(publishing["jumpbox"].restart())
        if number < 5:
            events[-1].cancel("again")
        else:
            events.append(publishing["web_0"].restart())
            publishing.clock.advance("1h")
    live = publishing["jumpbox"].restart()
    found: list[str] = []
    options: dict[str, Any] = {"$top": 2}
    while True:
        page = query(arm, f"{EVENTS} | project name", options=options)
        found += [row["name"] for row in page["data"]]
        if "$skipToken" not in page:
            break
        options["$skipToken"] = page["$skipToken"]
        if live.status == "Scheduled":
            live.cancel("it ends between two pages")
            publishing.clock.advance("1s")
            publishing["web_1"].restart()  # on no page
    assert sorted(found) == sorted([live.id, *(event.id for event in events)])


def test_a_tenant_finds_the_events_of_its_groups_only(publishing: Service) -> None:
    token(publishing, "ops", Role.ADMIN)
    arm = Arm(publishing, token(publishing, "t", Role.TENANT, groups=("jump",)).secret.text)
    publishing["web_0"].restart()
    own = publishing["jumpbox"].restart()
    assert [row["name"] for row in query(arm, EVENTS)["data"]] == [own.id]
    assert query(arm, f"{EVENTS} | where properties.Resources contains 'web'")["data"] == []
    assert query(arm, "Resources | where name startswith 'web'")["data"] == []
