"""What can be done in the portal, every verb of it: nothing happens without a confirmation that
says whom it concerns, nothing is done to a state that the page has not shown, and a refusal is
shown in the words of the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle
from typing import Any
from urllib.parse import urljoin

import msgspec
import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from forewarn.drivers.port import Failed, Performed, Task
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.testing import Service
from helpers.browser import go, portal
from helpers.reachable_hosts import cut_off
from helpers.token_api import Api

FLEET = """
hosts: [a1, a2, b1, b2, b3, c1]
groups:
  - name: web
    kind: scale-set
    policy: {may_postpone: "2h, twice"}
    machines:
      - {name: web_0, host: a1, update_domain: 0}
      - {name: web_1, host: a2, update_domain: 1}
  - name: shop
    kind: scale-set
    policy: {user_event_limit: 1}
    machines:
      - {name: shop_0, host: a1, update_domain: 0, spot: true}
      - {name: shop_1, host: a2, update_domain: 0}
  - name: sql
    kind: availability-set
    machines:
      - {name: sql-0, host: b1, update_domain: 0}
      - {name: sql-1, host: b2, update_domain: 1}
  - name: jobs
    kind: scale-set
    machines:
      - {name: jobs_0, host: c1, update_domain: 0, spot: true}
      - {name: jobs_1, host: c1, update_domain: 1}
      - {name: jobs_2, host: c1, update_domain: 1}
""" + "".join(
    f"  - {{name: r{n}, kind: standalone, labels: {{tier: roll}}, machines: [{{name: r{n}-0}}]}}\n"
    for n in range(7)
)
CHANGED = "It has changed in the meantime, and nothing was done."


class Failing(SimulatedDriver):
    """A driver that fails to do what its description says."""

    async def perform(self, task: Task) -> Performed:
        if task.description == "fails":
            return Failed("the hypervisor says no")
        return await super().perform(task)


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody does with a dialog, and what is sent."""

    label: str
    says: tuple[str, ...]  # whom it concerns, and what it causes
    confirm: str = ""  # the button, if it is not called like the verb
    enter: dict[str, str | bool] = {}  # into fields, by their labels
    plan: str = ""  # the button that shows a plan first
    planned: str = ""  # and what the plan says
    refused: dict[str, str | bool] = {}  # what is entered before, and refused
    reason: str = ""  # words of its refusal
    touch: Callable[[], object] | None = None  # changes the resource while the dialog is open
    sends: str  # method and path
    body: object = None
    keyed: bool = True


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(
        FLEET, sockets=True, driver=Failing(ImpactJournal(), paced=lambda duration: duration)
    ) as service:
        service.document("web_0")
        yield service


@pytest.fixture
def api(service: Service) -> Api:
    return Api(service.control_url)


def post(api: Api, path: str, body: object = None) -> Any:
    answer = api.call("POST", path, body)
    assert answer.status in (200, 201), answer.body
    return answer.json()


def ask(page: Page, verb: str) -> Locator:
    """Press the button of a verb, and return the dialog that asks whether it is meant."""
    page.get_by_role("button", name=f"{verb}…", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Back")).to_be_focused()
    expect(dialog.locator("fieldset")).to_have_count(1)
    return dialog


def enter(dialog: Locator, values: dict[str, str | bool]) -> None:
    expect(dialog.locator("fieldset")).to_have_count(1)
    for label, value in values.items():
        choice = dialog.get_by_role("combobox", name=label, exact=True)
        field = dialog.get_by_label(label, exact=True).or_(choice).first
        if not field.is_visible():
            field.locator("xpath=ancestor::details/summary").click()
        if isinstance(value, bool):
            field.set_checked(value)
        elif field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)


def confirm(dialog: Locator, label: str) -> Request:
    """Press the button that confirms, and return the request that it sends."""
    with dialog.page.expect_request(lambda request: request.method != "GET") as sent:
        dialog.get_by_role("button", name=label, exact=True).click()
    return sent.value


def use(page: Page, verb: Verb) -> None:
    """Use a verb: first so that it is refused, then on what has changed meanwhile, then rightly."""
    dialog, label = ask(page, verb.label), verb.confirm or verb.label
    for text in verb.says:
        expect(dialog).to_contain_text(text)
    if verb.reason:
        enter(dialog, verb.refused)
        confirm(dialog, verb.plan or label)
        expect(dialog.get_by_role("alert")).to_contain_text(verb.reason)
    enter(dialog, verb.enter)
    if verb.plan:
        confirm(dialog, verb.plan)
        expect(dialog.locator(".preview")).to_contain_text(verb.planned)
    if verb.touch is not None:
        verb.touch()
        confirm(dialog, label)
        expect(dialog.get_by_role("alert")).to_contain_text(CHANGED)
    request = confirm(dialog, label)
    path = request.url.removeprefix(urljoin(page.url, "/"))
    assert f"{request.method} /{path}" == verb.sends
    assert request.post_data_json == verb.body
    assert ("if-match" in request.headers) == (verb.touch is not None)
    assert ("idempotency-key" in request.headers) == verb.keyed
    expect(page.locator(".tasks p").first).to_contain_text("done")
    expect(dialog.locator("form")).to_have_count(0)
    if dialog.count():  # with notes of the service
        dialog.get_by_role("button", name="Close").click()
        expect(dialog).to_have_count(0)


def offered(page: Page, *verbs: str) -> None:
    """All verbs that the page offers for what it is about, in their order."""
    expect(page.locator("main .verbs button")).to_have_text([f"{verb}…" for verb in verbs])


numbers = count(1)


def touch_event(api: Api, id: str, machine: str, readiness: Iterator[bool]) -> None:
    post(api, f"/v1/events/{id}/ready", {"machine": machine, "ready": next(readiness)})


def touch_machine(api: Api, name: str) -> None:
    change(api, f"/v1/machines/{name}", {"labels": {"touched": str(next(numbers))}})


def touch_host(api: Api, name: str) -> None:
    assert (
        api.call("PUT", f"/v1/hosts/{name}", {"labels": {"touched": str(next(numbers))}}).status
        == 200
    )


def change(api: Api, path: str, body: object) -> None:
    assert api.call("PATCH", path, body).status == 200


def touch_group(api: Api, name: str) -> None:
    change(api, f"/v1/groups/{name}/policy", {"user_event_limit": next(numbers)})


def test_every_verb_of_events_works(browser: Browser, service: Service, api: Api) -> None:
    event = service.schedule("Reboot", "web_0")
    path = f"/v1/events/{event.id}"
    touch = partial(touch_event, api, event.id, "web_1", cycle([True, False]))
    with portal(browser, service, f"/events/{event.id}", refused=(400, 409, 412)) as page:
        expect(page.locator(".explanation")).to_contain_text("nobody has approved it")
        offered(page, "Approve", "Postpone", "Report ready", "Cancel")
        use(
            page,
            Verb(
                label="Postpone",
                says=("1 machineweb_0", "1 groupweb", "NotBefore moves from 2027-01-15 08:15"),
                refused={"By how much": "3h"},
                reason="allows 2 h more",
                enter={"By how much": "", "or until (UTC)": "2027-01-15T09:00"},
                touch=touch,
                sends=f"POST {path}/postpone",
                body={"until": "2027-01-15T09:00:00.000Z"},
            ),
        )
        use(
            page,
            Verb(
                label="Report ready",
                says=("1 groupweb", "Nothing starts because of it."),
                confirm="Report it",
                enter={"Machine": "web_0", "Note": "drained"},
                touch=touch,
                sends=f"POST {path}/ready",
                body={"machine": "web_0", "note": "drained"},
            ),
        )
        use(
            page,
            Verb(
                label="Approve",
                says=("1 machineweb_0", "instead of at 2027-01-15 09:00:00 UTC, up to 1 h earlier"),
                touch=touch,
                sends=f"POST {path}/approve",
            ),
        )
        expect(page.locator(".page-head .badge")).to_have_text("Started")
        offered(page, "Report ready", "Retry", "Finish", "Abandon")
        use(
            page,
            Verb(
                label="Finish",
                says=("1 machineweb_0", "It counts as carried out"),
                refused={"Reason (required)": " "},
                reason="reason",
                enter={"Reason (required)": "done by hand"},
                touch=touch,
                sends=f"POST {path}/finish",
                body={"reason": "done by hand"},
            ),
        )
        expect(page.locator(".page-head .badge")).to_have_text("Finished")
        offered(page)
        expect(page.locator(".tasks")).to_contain_text("Finish Reboot of web_0 done")


def test_every_verb_of_held_events_works(browser: Browser, service: Service, api: Api) -> None:
    failed = service.schedule("Reboot", "web_1", description="fails")
    service.approve("web_1", failed)
    touch = partial(touch_event, api, failed.id, "web_0", cycle([True, False]))
    with portal(browser, service, f"/events/{failed.id}", refused=(400, 412)) as page:
        use(
            page,
            Verb(
                label="Retry",
                says=("1 machineweb_1", "The driver carries it out again."),
                touch=touch,
                sends=f"POST /v1/events/{failed.id}/retry",
            ),
        )
        use(
            page,
            Verb(
                label="Abandon",
                says=("1 machineweb_1", "It did not happen"),
                refused={"Reason (required)": " "},
                reason="reason",
                enter={"Reason (required)": "no more"},
                touch=touch,
                sends=f"POST /v1/events/{failed.id}/abandon",
                body={"reason": "no more"},
            ),
        )
        held = service.schedule("Reboot", "web_0")
        touch = partial(touch_event, api, held.id, "web_1", cycle([True, False]))
        change(api, "/v1/groups/web/policy", {"blackouts": ["2027-01-15"]})
        service.approve("web_1", held)
        go(page, f"/events/{held.id}")
        offered(page, "Ignore windows", "Report ready", "Cancel")
        use(
            page,
            Verb(
                label="Ignore windows",
                says=("1 machineweb_0", "although 'group web' has a blackout"),
                confirm="Ignore them",
                touch=touch,
                sends=f"POST /v1/events/{held.id}/approve?ignore_windows=true",
            ),
        )
        expect(page.locator(".page-head .badge")).to_have_text("Started")
        change(api, "/v1/groups/web/policy", {"blackouts": []})
        post(api, f"/v1/events/{held.id}/finish", {"reason": "so"})
        cancelled = service.schedule("Reboot", "web_0")
        go(page, f"/events/{cancelled.id}")
        use(
            page,
            Verb(
                label="Cancel",
                says=("1 machineweb_0", "It does not happen, and guests no longer see it."),
                confirm="Cancel the event",
                enter={"Reason": "wrong week"},
                touch=partial(touch_event, api, cancelled.id, "web_1", cycle([True, False])),
                sends=f"POST /v1/events/{cancelled.id}/cancel",
                body={"reason": "wrong week"},
            ),
        )


def test_every_verb_of_machines_works(browser: Browser, service: Service, api: Api) -> None:
    service.document("shop_1")
    path, touch = "/v1/machines/shop_0", partial(touch_machine, api, "shop_0")
    with portal(browser, service, "/machines/shop_0", refused=(400, 404, 409, 412)) as page:
        usual = ("Restart", "Redeploy", "Evict", "Announce an event", "Record a move")
        offered(page, *usual, "Fail", "Delete")
        use(
            page,
            Verb(
                label="Restart",
                says=("1 machineshop_0", "1 groupshop", "1 hosta1", "announced to its group"),
                touch=touch,
                sends=f"POST {path}/restart",
            ),
        )
        use(
            page,
            Verb(
                label="Redeploy",
                says=("1 machineshop_0", "what is on its local disks is lost"),
                reason="1 user events",
                touch=lambda: post(api, "/v1/events/cancel", {"machine": "shop_0"}),
                sends=f"POST {path}/redeploy",
            ),
        )
        use(
            page,
            Verb(
                label="Announce an event",
                says=("1 machineshop_0", "starts when it is approved"),
                confirm="Announce it",
                refused={"Type": "Reboot", "Notice": "1m"},
                reason="not 1 min",
                enter={"Notice": "", "Not before (UTC)": "2027-01-16T08:00", "Ticket": "CHG-7"},
                sends="POST /v1/events",
                body={
                    "type": "Reboot",
                    "machines": ["shop_0"],
                    "source": "Platform",
                    "not_before": "2027-01-16T08:00:00.000Z",
                    "ticket": "CHG-7",
                },
            ),
        )
        use(
            page,
            Verb(
                label="Record a move",
                says=("1 machineshop_0", "Nothing is done to the machine."),
                confirm="Record it",
                refused={"Host that it is on now (required)": "a3"},
                reason="no host 'a3'",
                enter={"Host that it is on now (required)": "a2"},
                touch=touch,
                sends=f"POST {path}/moved",
                body={"host": "a2"},
            ),
        )
        use(
            page,
            Verb(
                label="Evict",
                says=("1 machineshop_0", "announced to its group as a Preempt, and then stopped"),
                touch=touch,
                sends=f"POST {path}/evict",
            ),
        )
        go(page, "/machines/shop_1")
        path, touch = "/v1/machines/shop_1", partial(touch_machine, api, "shop_1")
        use(
            page,
            Verb(
                label="Fail",
                says=("1 machineshop_1", "The event that is announced has already started"),
                enter={"What guests are shown": "Reboot", "Type shop_1 to confirm": "shop_1"},
                touch=touch,
                sends=f"POST {path}/fail",
                body={"type": "Reboot"},
            ),
        )
        use(
            page,
            Verb(
                label="Delete",
                says=("1 machineshop_1", "The machine is deleted."),
                enter={"Type shop_1 to confirm": "shop_1"},
                touch=touch,
                sends=f"POST {path}/delete",
            ),
        )
        service.clock.advance("1m")
        offered(page, "Restore")
        use(
            page,
            Verb(
                label="Restore",
                says=("1 machineshop_1", "It no longer exists", "as it was before"),
                touch=touch,
                sends=f"POST {path}/restore",
            ),
        )


def test_every_verb_of_hosts_works(browser: Browser, service: Service, api: Api) -> None:
    path, touch = "/v1/hosts/b1", partial(touch_host, api, "b1")
    whom = ("1 machinesql-0", "1 groupsql", "1 hostb1")
    with portal(browser, service, "/hosts/b1", refused=(400, 409, 412)) as page:
        offered(page, "Maintain", "Cordon", "Drain", "Degrade", "Fail")
        use(
            page,
            Verb(
                label="Cordon",
                says=(*whom, "It is healthy.", "No machine is moved to it any more."),
                enter={"Note": "new fans"},
                touch=touch,
                sends=f"POST {path}/cordon",
                body={"note": "new fans"},
            ),
        )
        offered(page, "Maintain", "Uncordon", "Drain", "Return", "Degrade", "Fail")
        use(
            page,
            Verb(
                label="Uncordon",
                says=(*whom, "It is healthy and cordoned."),
                touch=touch,
                sends=f"POST {path}/uncordon",
            ),
        )
        use(
            page,
            Verb(
                label="Maintain",
                says=(*whom, "It is announced to 1 group with an event each."),
                confirm="Announce the maintenance",
                refused={"What the machines notice": "Reboot", "Notice": "1m"},
                reason="“Allow less than",
                enter={"Allow less than the minimum notice": True},
                touch=touch,
                sends=f"POST {path}/maintain",
                body={"mode": "Reboot", "notice": 60, "short_notice": True},
            ),
        )
        use(
            page,
            Verb(
                label="Drain",
                says=(*whom, "1 machine is moved to other hosts by live migration"),
                reason="host 'b1' ",
                touch=lambda: post(api, "/v1/events/cancel", {"host": "b1"}),
                sends=f"POST {path}/drain",
                body={},
            ),
        )
        use(
            page,
            Verb(
                label="Return",
                says=(*whom, "it is uncordoned"),
                touch=touch,
                sends=f"POST {path}/return",
            ),
        )
        use(
            page,
            Verb(
                label="Degrade",
                says=(*whom, "1 machine is redeployed to other hosts, after notice"),
                refused={"Notice": "100d"},
                reason="notice",
                enter={"Notice": "2d"},
                touch=touch,
                sends=f"POST {path}/degrade",
                body={"notice": 172_800},
            ),
        )
        use(
            page,
            Verb(
                label="Repair",
                says=("It is degraded, with 1 event planned", "It is healthy again"),
                touch=touch,
                sends=f"POST {path}/repair",
            ),
        )
        use(
            page,
            Verb(
                label="Fail",
                says=(*whom, "1 machine is moved to other hosts without notice"),
                enter={"What guests are shown": "Reboot", "Type b1 to confirm": "b1"},
                touch=touch,
                sends=f"POST {path}/fail",
                body={"type": "Reboot"},
            ),
        )
        offered(page, "Maintain", "Cordon", "Drain", "Repair")
        cut_off(service, "b3")
        go(page, "/hosts/b3")
        use(
            page,
            Verb(
                label="Without a node",
                says=("1 hostb3", "Make sure that the node is stopped"),
                enter={"Type b3 to confirm": "b3"},
                touch=partial(touch_host, api, "b3"),
                sends="POST /v1/hosts/b3/without-node",
            ),
        )
        cut_off(service, "b3")
        go(page, "/hosts/b3")
        use(
            page,
            Verb(
                label="Revoke",
                says=("1 hostb3", "Its node is disconnected at once"),
                enter={"Type b3 to confirm": "b3"},
                touch=partial(touch_host, api, "b3"),
                sends="POST /v1/hosts/b3/revoke",
            ),
        )


def test_every_verb_of_groups_works(browser: Browser, service: Service, api: Api) -> None:
    service.document("jobs_1")
    path, touch = "/v1/groups/jobs", partial(touch_group, api, "jobs")
    with portal(browser, service, "/groups/jobs", refused=(400, 404, 409, 412)) as page:
        common = ("Start a rollout", "Change the policy", "Announce an event")
        offered(page, *common, "Scale in", "Evict spot machines", "Halt", "Disable")
        use(
            page,
            Verb(
                label="Change the policy",
                says=("1 groupjobs", "3 machines", "It applies at once"),
                confirm="Change it",
                refused={"Windows": "someday"},
                reason="'someday' is not",
                enter={"Windows": "", "May postpone": "1h", "User events at a time": "7"},
                touch=touch,
                sends=f"PATCH {path}/policy",
                body={"may_postpone": "1h", "user_event_limit": 7},
                keyed=False,
            ),
        )
        expect(page.locator(".facts")).to_contain_text("May postpone1h")
        use(
            page,
            Verb(
                label="Announce an event",
                says=("1 groupjobs",),
                confirm="Announce it",
                refused={"Machines (required)": "jobs_9"},
                reason="no machine 'jobs_9'",
                enter={"Machines (required)": "jobs_1, jobs_2"},
                sends="POST /v1/events",
                body={"type": "Freeze", "machines": ["jobs_1", "jobs_2"], "source": "Platform"},
            ),
        )
        use(
            page,
            Verb(
                label="Cancel all events",
                says=("1 groupjobs", "Those that have not started do not happen"),
                confirm="Cancel them",
                plan="Show the events",
                planned="Freeze of jobs_1, jobs_2",
                enter={"Reason": "wrong week"},
                sends="POST /v1/events/cancel",
                body={"group": "jobs", "reason": "wrong week"},
                keyed=False,
            ),
        )
        use(
            page,
            Verb(
                label="Scale in",
                says=("3 machinesjobs_2, jobs_1, jobs_0", "those with the highest numbers first"),
                refused={"How many to delete": "9", "Type jobs to confirm": "jobs"},
                reason="1 to 3, not 9",
                enter={"How many to delete": "1"},
                touch=touch,
                sends=f"POST {path}/scale-in",
                body={"count": 1},
            ),
        )
        use(
            page,
            Verb(
                label="Evict spot machines",
                says=("1 machinejobs_0", "Each is announced to the group as a Preempt"),
                confirm="Evict them",
                enter={"Evict all spot machines of jobs": True},
                touch=touch,
                sends=f"POST {path}/evict",
            ),
        )
        use(
            page,
            Verb(
                label="Disable",
                says=("1 groupjobs", "are not shown events"),
                touch=touch,
                sends=f"POST {path}/disable",
            ),
        )
        use(
            page,
            Verb(
                label="Halt",
                says=("1 groupjobs", "No event of the group starts"),
                enter={"Note": "smoke", "Halt all machines of jobs": True},
                sends="POST /v1/halts",
                body={"groups": ["jobs"], "note": "smoke"},
                keyed=False,
            ),
        )
        expect(page.locator(".halt")).to_contain_text("Halted: group jobs")
        confirm(ask(page, "Release"), "Release")
        expect(page.locator(".halt")).to_have_count(0)
        dialog = ask(page, "Start a rollout")
        expect(dialog.get_by_label("Groups", exact=True)).to_have_value("jobs")


def test_every_verb_of_the_fleet_works(browser: Browser, service: Service, api: Api) -> None:
    with portal(browser, service, "/fleet", refused=(400, 404, 409)) as page:
        dialog = ask(page, "Halt a part")
        enter(dialog, {"Halt this part of the fleet": True})
        dialog.get_by_role("button", name="Show what it covers").click()
        expect(dialog.get_by_role("alert")).to_contain_text("Name groups or labels.")
        page.keyboard.press("Escape")
        use(
            page,
            Verb(
                label="Halt a part",
                says=("to which all of this applies",),
                plan="Show what it covers",
                planned="It covers 7 machines, and keeps",
                confirm="Halt it",
                refused={"Machines with labels": "tier=none", "Halt this part of the fleet": True},
                reason="no machine",
                enter={"Machines with labels": "tier=roll", "Note": "bad image"},
                sends="POST /v1/halts",
                body={"label": "tier=roll", "note": "bad image"},
                keyed=False,
            ),
        )
        expect(page.locator(".halt")).to_contain_text("bad image")
        (halt,) = api.get("/v1/halts").json()
        use(
            page,
            Verb(
                label="Release",
                says=("7 machines", "by operator: bad image"),
                enter={"Note": "mended"},
                sends=f"POST /v1/halts/{halt['id']}/release",
                body={"note": "mended"},
                keyed=False,
            ),
        )
        use(
            page,
            Verb(
                label="Halt all",
                says=("16 machines", "No event starts in the whole fleet", "announced event"),
                enter={"Note": "smoke in row 7", "Halt the whole fleet": True},
                sends="POST /v1/halts",
                body={"note": "smoke in row 7"},
                keyed=False,
            ),
        )
        expect(page.locator(".halt")).to_contain_text("Halted: the whole fleet")
        expect(page.get_by_role("button", name="Halt all…")).to_have_count(0)
        confirm(ask(page, "Release"), "Release")
        expect(page.get_by_role("button", name="Halt all…")).to_be_visible()
        expect(page.locator(".tasks")).to_contain_text("3 earlier")


def test_every_verb_of_maintenance_configurations_works(browser: Browser, service: Service) -> None:
    path = "/v1/maintenance/nights"
    with portal(browser, service, "/maintenance", refused=(400,)) as page:
        expect(page.get_by_text("There is no maintenance configuration")).to_be_visible()
        use(
            page,
            Verb(
                label="Add a configuration",
                says=("It applies at once, also to events that are announced already.",),
                confirm="Add it",
                refused={"Name (required)": "nights", "Windows": "someday"},
                reason="someday",
                enter={"Windows": "22:00-04:00; sat 08:00-12:00", "Machines with labels": "tier=x"},
                sends=f"PUT {path}",
                body={"select": "tier=x", "windows": ["22:00-04:00", "sat 08:00-12:00"]},
                keyed=False,
            ),
        )
        expect(page.get_by_role("row").last).to_contain_text("22:00-04:00; sat 08:00-12:00")
        use(
            page,
            Verb(
                label="Change",
                says=("Change nights",),
                enter={"Windows": "", "Blackouts": "2027-03-01"},
                sends=f"PUT {path}",
                body={"select": "tier=x", "blackouts": ["2027-03-01"]},
                keyed=False,
            ),
        )
        expect(page.get_by_role("row").last).to_contain_text("2027-03-01")
        use(
            page,
            Verb(
                label="Remove",
                says=("start as soon as nothing else holds them",),
                enter={"Remove nights": True},
                sends=f"DELETE {path}",
                keyed=False,
            ),
        )
        expect(page.get_by_text("There is no maintenance configuration")).to_be_visible()


def test_every_verb_of_rollouts_works(browser: Browser, service: Service, api: Api) -> None:
    lanes = iter(("r6", "r5", "r4", "r3"))
    with portal(browser, service, "/rollouts", refused=(400, 404, 409, 412)) as page:
        use(
            page,
            Verb(
                label="Start a rollout",
                says=("The plan comes first.",),
                confirm="Start it",
                plan="Show the plan",
                planned="without group r0Machines6Groups6Hosts0Steps6Waves1 + 2 + 3Pauses1",
                refused={"Groups": "nonesuch"},
                reason="no group 'nonesuch'",
                enter={
                    "Groups": "",
                    "Type": "Reboot",
                    "Notice": "20m",
                    "Machines with labels": "tier=roll; tier=none,!canary",
                    "Leave out groups": "r0",
                    "Waves": "1, 50%",
                    "Pause after": "canary",
                    "Windows": "daily 00:00-24:00",
                    "Deadline (UTC)": "2027-02-01T00:00",
                    "Wait after each step": "10m",
                    "URL that has to answer with 2xx": "http://127.0.0.1:9/ready",
                    "Wait for the gate at most": "5m",
                    "Ticket": "CHG-8",
                },
                sends="POST /v1/rollouts",
                body={
                    "type": "Reboot",
                    "notice": 1200,
                    "labels": ["tier=roll", "tier=none,!canary"],
                    "exclude_groups": ["r0"],
                    "at_once": 1,
                    "waves": ["1", "50%"],
                    "pause_after": "canary",
                    "windows": ["daily 00:00-24:00"],
                    "deadline": "2027-02-01T00:00:00.000Z",
                    "bake": 600,
                    "gate_http": "http://127.0.0.1:9/ready",
                    "gate_timeout": 300,
                    "ticket": "CHG-8",
                },
            ),
        )
        page.locator(".tasks").get_by_role("link", name="Start a rollout").click()
        (rollout,) = api.get("/v1/rollouts").json()
        path = f"/v1/rollouts/{rollout['id']}"

        def touch() -> None:
            post(api, f"{path}/skip", {"lanes": [next(lanes)]})

        offered(page, "Pause", "Skip", "Abort")
        whom = ("6 machines", "6 groups", "1 eventReboot of r1-0")
        use(
            page,
            Verb(
                label="Pause",
                says=(*whom, "1 announced event still happens unless it is withdrawn."),
                enter={"Reason": "a look at it"},
                touch=touch,
                sends=f"POST {path}/pause",
                body={"reason": "a look at it"},
            ),
        )
        offered(page, "Resume", "Skip", "Abort")
        use(
            page,
            Verb(
                label="Resume",
                says=("It is paused, with 1 of 6 steps done.", "It goes on with 5 steps"),
                touch=touch,
                sends=f"POST {path}/resume",
            ),
        )
        use(
            page,
            Verb(
                label="Skip",
                says=("Steps that have not started are left out",),
                confirm="Skip them",
                refused={"or numbers of steps": "99"},
                reason="99",
                enter={"or numbers of steps": "", "Groups or hosts": "r2"},
                touch=touch,
                sends=f"POST {path}/skip",
                body={"lanes": ["r2"]},
            ),
        )
        use(
            page,
            Verb(
                label="Abort",
                says=("It cannot be resumed.", "1 event that has not started is cancelled"),
                enter={"End this rollout for good": True, "Reason": "enough"},
                touch=touch,
                sends=f"POST {path}/abort",
                body={"reason": "enough"},
            ),
        )
        offered(page)


def test_destructive_verbs_need_an_entry_that_confirms_them(
    browser: Browser, service: Service
) -> None:
    with portal(browser, service, "/machines/r1-0") as page:
        cases: dict[str, tuple[dict[str, str | bool], ...]] = {
            "Delete": ({}, {"Type r1-0 to confirm": "r1"}, {"Type r1-0 to confirm": "r1-0"}),
            "Halt all": ({}, {"Halt the whole fleet": True}),
        }
        for verb, entries in cases.items():
            dialog = ask(page, verb)
            button = dialog.get_by_role("button", name=verb, exact=True)
            for values in entries:
                expect(button).to_be_disabled()
                enter(dialog, values)
            expect(button).to_be_enabled()
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)


def test_a_request_that_is_repeated_after_a_lost_answer_is_carried_out_once(
    browser: Browser, service: Service, api: Api
) -> None:
    with portal(browser, service, "/machines/r0-0", lost=True) as page:
        keys: list[str] = []

        def lose_the_first_answer(route: Route) -> None:
            keys.append(route.request.headers["idempotency-key"])
            if len(keys) == 1:
                route.fetch()
                route.abort()
            else:
                route.continue_()

        page.route("**/restart", lose_the_first_answer)
        dialog = ask(page, "Restart")
        page.keyboard.press("Escape")  # which is the same as Back
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("button", name="Restart…")).to_be_focused()
        ask(page, "Restart")
        confirm(dialog, "Restart")
        unknown = "It is not known whether this was done."
        expect(dialog.get_by_role("alert")).to_contain_text(unknown)
        confirm(dialog, "Send again")
        expect(dialog).to_contain_text("Restart r0-0: done")
        assert keys[0] == keys[1]
        records = api.get("/v1/history?what=raised&machine=r0-0").json()["records"]
        assert len(records) == 1
