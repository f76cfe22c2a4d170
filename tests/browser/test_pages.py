"""The pages of the portal about one thing, and how one leads to the other."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from forewarn.drivers.port import Again, Done, Performed, Running, Task
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.testing import Service
from helpers.browser import portal
from helpers.token_api import Api

FLEET = """
hosts: [host-a, host-b]
groups:
  - name: web
    kind: scale-set
    policy: {may_postpone: "2h, twice"}
    machines:
      - {name: web_0, host: host-a, update_domain: 0}
      - {name: web_1, host: host-b, update_domain: 1}
"""


class ReportingDriver(SimulatedDriver):
    """Says how far it is, and in the end for how long its machines stood still."""

    async def perform(self, task: Task) -> Performed:
        done = await super().perform(task)
        if isinstance(done, Again):
            return Running(done.at - task.now, "63 %")
        away = {machine.name: 0.043 for machine in task.machines}
        return msgspec.structs.replace(done, away=away) if isinstance(done, Done) else done


@pytest.fixture
def service() -> Iterator[Service]:
    driver = ReportingDriver(ImpactJournal(), lambda duration: duration)
    with Service(FLEET, sockets=True, driver=driver) as service:
        yield service


def post(service: Service, path: str, body: object) -> dict[str, object]:
    answer = Api(service.control_url).call("POST", path, body)
    assert answer.status in (200, 201), answer.body
    found: dict[str, object] = answer.json()
    return found


def test_a_host_leads_to_its_machines_and_these_to_their_group_and_history(
    browser: Browser, service: Service
) -> None:
    post(service, "/v1/hosts/host-a/maintain", {"mode": "reboot"})
    with portal(browser, service, "/hosts/host-a") as page:
        expect(page.locator(".explanation")).to_contain_text("1 event about it, 0 started")
        expect(page.locator(".explanation")).to_contain_text("the notice has not passed")
        row = page.get_by_role("table").filter(has_text="1 machine").get_by_role("row").last
        expect(row).to_contain_text("Scheduled")
        row.get_by_role("link", name="web_0").click()
        expect(page.get_by_role("heading", name="Machine web_0")).to_be_visible()
        expect(page.locator(".badges")).to_have_text("has never polled")
        service.document("web_0")
        page.locator(".facts").get_by_role("link", name="web").click()
        expect(page.locator(".facts")).to_contain_text("2h, twice")
        expect(page.locator(".domains").get_by_role("row").nth(1)).to_contain_text("1")
        page.goto(f"{service.control_url}/ui/history?machine=web_0&what=raised")
        expect(page.get_by_role("row")).to_have_count(2)
        page.get_by_role("textbox", name="What").fill("finished")
        service.schedule("Freeze", "web_0")  # what is typed is not lost when the page changes
        expect(page.get_by_role("row")).to_have_count(3)
        page.get_by_role("textbox", name="What").press("Enter")
        expect(page).to_have_url(f"{service.control_url}/ui/history?machine=web_0&what=finished")
        expect(page.get_by_text("No record matches.")).to_be_visible()


def test_the_life_of_an_event_is_a_table_with_marks_on_a_line(
    browser: Browser, service: Service
) -> None:
    event = service.schedule("Redeploy", "web_0")
    service.clock.advance("5m")
    service.document("web_1")
    with portal(browser, service, f"/events/{event.id}") as page:
        timeline = page.get_by_role("table").filter(has_text="Timeline")
        heads = timeline.get_by_role("rowheader")
        expect(heads).to_have_text(["Announced", "First seen", "NotBefore"])
        expect(timeline.get_by_role("row").nth(2)).to_contain_text("5 min")
        expect(timeline.locator("circle.ahead")).to_have_count(1)
        machines = page.get_by_role("table").filter(has_text="First shown")
        service.approve("web_1", event)
        expect(machines.get_by_role("row").nth(1).get_by_role("link")).to_have_text(
            ["web_0", "host-b"]
        )
        expect(page.locator(".explanation")).to_contain_text("63 %")
        service.clock.advance("11m")
        expect(heads).to_have_text(
            ["Announced", "First seen", "Approved", "Started", "NotBefore", "Ended"]
        )
        expect(timeline.locator("circle.ahead")).to_have_count(0)
        row = machines.get_by_role("row").nth(1)
        expect(row).to_contain_text("not before it started")
        expect(row).to_contain_text("0.043 s")
        expect(row.get_by_role("cell").last).to_have_text("no: it has not polled since")
        service.document("web_0")
        page.reload()  # a poll alone is no change
        expect(row.get_by_role("cell").last).to_have_text("yes")
        records = page.get_by_role("table").filter(has_text="What has happened")
        expect(records).to_contain_text("not shown before to web_0")
        expect(records).to_contain_text("stood still: web_0 for 0.043 s")
        page.goto(f"{service.control_url}/ui/machines/web_0")
        past = page.get_by_role("table", name="What has happened to it").get_by_role("row").last
        expect(past.get_by_role("cell").nth(2)).to_have_text(
            "no: it was not shown before it started"
        )
        expect(past.get_by_role("cell").nth(3)).to_contain_text("web_1")
        expect(past.get_by_role("cell").nth(4)).to_have_text("0.043 s")


def test_a_rollout_is_the_same_as_a_picture_and_as_a_table(
    browser: Browser, service: Service
) -> None:
    rollout = post(service, "/v1/rollouts", {"type": "Reboot", "groups": ["web"], "bake": 600})
    with portal(browser, service, "/rollouts") as page:
        page.get_by_role("link", name="Reboot").click()
        expect(page.get_by_text("0 of 2 steps done")).to_be_visible()
        expect(page.get_by_role("link", name="domain 0: announced")).to_be_visible()
        expect(page.get_by_role("img", name="domain 1: waiting")).to_be_visible()
        service.clock.advance("16m")
        expect(page.get_by_role("link", name="domain 0: started")).to_be_visible()
        page.locator(".lane").get_by_role("link", name="web").click()
        address = f"{service.control_url}/ui/rollouts/{rollout['id']}"
        expect(page).to_have_url(f"{address}?group=web")
        rows = page.locator("details table").get_by_role("row")
        expect(rows).to_have_count(3)
        expect(rows.nth(1)).to_contain_text("started")
        page.locator(".sums").get_by_role("link", name="1 waiting").click()
        expect(rows).to_have_count(2)


def test_the_virtual_clock_is_moved_and_followed(browser: Browser, service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    with portal(browser, service) as page:
        events = page.locator("table:not(.records)")
        row = events.get_by_role("row").filter(has_text=event.id[:8])
        clock = page.get_by_role("region", name="Virtual clock")
        expect(clock).to_contain_text("next due in 15 min")
        page.get_by_role("button", name="+1 min").click()
        expect(clock).to_contain_text("next due in 14 min")
        expect(row).to_contain_text("in 14 min")
        page.get_by_role("button", name="To what is next").click()
        expect(row).to_contain_text("Started")
        service.clock.advance("1m")  # somebody else
        expect(row).to_contain_text("1 min ago")
        before = service.clock.now
        page.get_by_label("Speed").select_option("600×")
        page.get_by_role("button", name="Play").click()
        expect(row).to_have_count(0)
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Play")).to_be_visible()
        assert service.clock.now > before


def test_the_search_is_used_with_the_keyboard(browser: Browser, service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    with portal(browser, service) as page:
        expect(page.get_by_role("heading", name="Status")).to_be_visible()
        page.keyboard.press("/")
        search = page.get_by_role("combobox", name="Search")
        expect(search).to_be_focused()
        search.press_sequentially("WEB")
        options = page.get_by_role("option")
        expect(options).to_contain_text(["group web", "machine web_0", "machine web_1"])
        search.press("ArrowDown")
        expect(options.nth(1)).to_have_attribute("aria-selected", "true")
        search.press("Enter")
        expect(page.get_by_role("heading", name="Machine web_0")).to_be_visible()
        page.keyboard.press("/")
        search.fill(event.id[:6].lower())
        expect(options).to_contain_text(["Reboot of web_0"])
        search.fill("nonesuch")
        expect(page.get_by_text("Nothing has such a name or id.")).to_be_visible()
