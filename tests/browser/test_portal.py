"""The portal in a browser: what its pages show, and that they follow what happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.core.access import Role
from forewarn.drivers.port import Observed, Performed, Task, Unknown
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.testing import Service
from helpers.browser import portal
from helpers.oidc_issuer import issuer
from helpers.reachable_hosts import cut_off
from helpers.token_api import Api, token

FLEET = """
hosts: [{name: host-a, labels: {rack: r1}}, {name: host-b, labels: {rack: r2}}]
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, host: host-a, update_domain: 0}
      - {name: web_1, host: host-b, update_domain: 1}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


def test_pages_follow_what_happens(browser: Browser, service: Service) -> None:
    with portal(browser, service) as page:
        expect(page.get_by_text("Nothing is announced.")).to_be_visible()
        expect(page.get_by_text("live")).to_be_visible()
        event = service.schedule("Reboot", "web_0")
        row = page.get_by_role("row").filter(has_text=event.id[:8])
        expect(row).to_contain_text("web_0")
        expect(row).to_contain_text("in 15 min")
        row.get_by_role("link").first.click()
        expect(page).to_have_url(f"{service.control_url}/ui/events/{event.id}")
        explanation = page.locator(".explanation")
        expect(explanation).to_contain_text("its notice has not passed and nobody has approved it")
        service.document("web_1")
        service.approve("web_1", event)
        expect(page.locator(".badge")).to_have_text("Started")
        expect(page.get_by_role("table").last).to_contain_text("web_1")


def test_what_starts_next_is_on_the_front_page_however_much_is_announced(
    browser: Browser, service: Service
) -> None:
    api = Api(service.control_url)
    for number in range(120):
        body = {"type": "Freeze", "machines": ["web_0"], "notice": 7 * 86_400 + number}
        assert api.post("/v1/events", body).status == 201
    soon = service.schedule("Reboot", "web_1").id
    with portal(browser, service) as page:
        rows = page.get_by_role("table", name="Starts next").locator("tbody tr")
        expect(rows).to_have_count(10)
        expect(rows.first).to_contain_text(soon[:8])
        page.get_by_role("link", name="121 events in all").click()
        expect(page.locator("tbody tr").first).to_contain_text(soon[:8])
        page.get_by_role("textbox", name="Label").fill("no=such")
        page.get_by_role("textbox", name="Label").press("Enter")
        expect(page.get_by_text("No event matches.")).to_be_visible()


def test_the_front_page_says_that_everything_works_only_if_the_command_does(
    browser: Browser, service: Service
) -> None:
    def command() -> int:
        words = ["status", "--url", service.control_url]
        return CliRunner().invoke(app, words).exit_code

    api = Api(service.control_url)
    with portal(browser, service) as page:
        expect(page.get_by_text("Everything works.")).to_be_visible()
        assert command() == 0
        assert api.post("/v1/hosts/host-b/fail", {"note": "no power"}).status == 200
        problems = page.locator(".unwell li")
        expect(problems).to_contain_text(["host host-b has failed: no power"])
        expect(page.get_by_text("Everything works.")).to_be_hidden()
        assert command() == 1
        assert api.post("/v1/halts", {"note": "smoke"}).status == 200
        expect(problems.first).to_contain_text("halted: the whole fleet")
        problems.last.get_by_role("link").click()
        expect(page.get_by_role("heading", name="Host host-b")).to_be_visible()


def test_a_host_that_cannot_be_reached_is_found_from_the_front_page(
    browser: Browser, service: Service
) -> None:
    cut_off(service, "host-b")
    with portal(browser, service, timezone_id="Europe/Berlin") as page:
        problem = page.locator(".unwell li")
        expect(problem).to_contain_text("1 host cannot be reached")
        expect(problem).to_contain_text("GMT+1 (")  # the service says it in UTC alone
        problem.get_by_role("link").click()
        expect(page).to_have_url(f"{service.control_url}/ui/fleet?state=unhealthy")
        expect(page.get_by_role("row")).to_have_count(2)
        page.get_by_role("link", name="host-b", exact=True).click()
        expect(page.locator(".page-head .badges")).to_contain_text("unreachable")


def test_a_maintenance_says_that_it_is_held(browser: Browser) -> None:
    class Unclear(SimulatedDriver):
        repeatable = False

        async def perform(self, task: Task) -> Performed:
            return Unknown("nobody knows")

        async def observe(self, task: Task) -> Observed:
            return Unknown("nobody knows")

    numbers = (2, 9, 10)  # the one that says so is the first as computers count
    groups = "".join(
        f"  - {{name: g{n}, kind: standalone, machines: [{{name: m{n}, host: host-a}}]}}\n"
        for n in numbers
    )
    driver = Unclear(ImpactJournal(), paced=lambda duration: duration)
    with Service(f"hosts: [host-a]\ngroups:\n{groups}", sockets=True, driver=driver) as service:
        for n in numbers:
            service.document(f"m{n}")
        body = {"mode": "Reboot", "duration": 600}
        events = Api(service.control_url).post("/v1/hosts/host-a/maintain", body).json()["events"]
        for event in events:
            service.approve(event["machines"][0], event["id"])
        with portal(browser, service, "/events") as page:
            row = page.get_by_role("row").filter(has_text="Reboot of host host-a")
            expect(row.get_by_role("button")).to_have_text("3 events")
            expect(row.get_by_role("cell").nth(2)).to_have_text("g2, g9, g10")
            expect(row.locator(".badge")).to_contain_text("nobody knows")


def test_only_what_starts_together_is_shown_as_one_maintenance(browser: Browser) -> None:
    groups = "".join(
        f"  - {{name: g{n}, kind: availability-set, machines: [{{name: m{n}, host: host-a}},"
        f" {{name: n{n}, host: host-b}}]}}\n"
        for n in range(3)
    )
    with Service(f"hosts: [host-a, host-b]\ngroups:\n{groups}", sockets=True) as service:
        api = Api(service.control_url)
        for machine in ("m0", "m1"):
            service.document(machine)
        service.clock.advance("1h")  # these groups listen
        assert api.post("/v1/hosts/host-b/degrade", {}).status == 200
        body = {"mode": "Reboot", "notice": 7200}
        events = api.post("/v1/hosts/host-a/maintain", body).json()["events"]
        assert {event["status"] for event in events} == {"Scheduled"}
        service.approve("m0", next(event["id"] for event in events if event["group"] == "g0"))
        with portal(browser, service, "/events") as page:
            whole = page.get_by_role("row").filter(has_text="Reboot of host host-a")
            expect(whole).to_contain_text("m0, m1, m2")
            expect(whole).to_contain_text("not approved by g1")
            expect(page.locator("tbody tr")).to_have_count(4)  # and one each because of host-b
            whole.get_by_role("button", name="3 events").click()
            expect(page.locator("tr.part")).to_have_count(3)
            expect(page.locator("tr.part").filter(has_text="m0")).to_contain_text("approved by m0")
            expect(page.get_by_role("row").filter(has_text="Redeploy")).to_have_count(3)


def test_the_fleet_is_summed_by_a_label_and_what_is_not_quiet_comes_first(
    browser: Browser, service: Service
) -> None:
    service.schedule("Reboot", "web_0")
    with portal(browser, service, "/fleet") as page:
        expect(page.get_by_text("2 machines on 2 hosts")).to_be_visible()
        rows = page.get_by_role("row")
        expect(rows.nth(1)).to_contain_text("host-a")
        expect(rows.nth(1).get_by_role("cell").nth(5)).to_have_text("1")  # scheduled
        page.get_by_label("Only what is").select_option("scheduled")
        expect(page).to_have_url(f"{service.control_url}/ui/fleet?state=scheduled")
        expect(page.get_by_text("1 machine on 1 host")).to_be_visible()
        page.get_by_label("Only what is").select_option("")
        api = Api(service.control_url)
        assert api.post("/v1/hosts/host-b/cordon", {}).status == 200
        assert api.post("/v1/hosts/host-b/fail", {}).status == 200
        expect(rows.nth(1)).to_contain_text("host-b")
        expect(rows.nth(1).locator(".badge")).to_have_text(["failed", "cordoned"])
        page.get_by_role("link", name="1 unhealthy").click()
        expect(page).to_have_url(f"{service.control_url}/ui/fleet?state=unhealthy")
        expect(rows).to_have_count(2)
        page.get_by_label("Only what is").select_option("held")
        expect(page.get_by_text("No host matches. Change the filters above.")).to_be_visible()
        page.get_by_role("link", name="Clear").click()
        page.get_by_label("Summed by").select_option("rack")
        expect(rows.nth(1)).to_contain_text("1 unhealthy")
        page.get_by_role("button", name="r2: hosts").click()
        expect(rows.nth(2)).to_contain_text("host-b")
        expect(page).to_have_url(f"{service.control_url}/ui/fleet?sums=rack&open=rack%3Dr2")
        page.locator(".fleet-map").get_by_text("r1").click()
        expect(page).to_have_url(f"{service.control_url}/ui/fleet?label=rack%3Dr1")
        expect(page.get_by_text("1 machine on 1 host")).to_be_visible()


def test_a_login_at_an_openid_connect_issuer_leads_back_to_the_page(
    browser: Browser, service: Service
) -> None:
    with issuer() as issued:

        async def accept() -> None:
            service._session.node.accept_issuer(issued.config(client_id="forewarn"))

        service._session.run(accept())
        with portal(browser, service, "/events?type=Reboot", issuer=issued.url) as page:
            page.get_by_role("link", name="Log in with OpenID Connect").click()
            expect(page.get_by_text("ann@example.net (admin)")).to_be_visible()
            expect(page).to_have_url(f"{service.control_url}/ui/events?type=Reboot")
            page.get_by_role("button", name="Log out").click()
            expect(page.get_by_text("You have logged out.")).to_be_visible()
            issued.logs_in = {"groups": ["nobody"]}
        with portal(browser, service, issuer=issued.url, refused=(403,)) as page:
            page.get_by_role("link", name="Log in with OpenID Connect").click()
            expect(page.get_by_text("You have logged in, but have no access")).to_be_visible()
            page.get_by_role("link", name="To the portal").click()
            expect(page.get_by_text("This service needs a token.")).to_be_visible()


def test_the_portal_needs_a_token_that_is_not_revoked(browser: Browser, service: Service) -> None:
    token(service, "alice", Role.ADMIN)
    bob = token(service, "bob", Role.VIEWER).secret.text
    with portal(browser, service, refused=(401,)) as page:
        expect(page.get_by_text("This connection is not encrypted")).to_be_visible()
        page.get_by_label("Token").fill("fw_wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("this token is unknown, wrong")
        page.get_by_label("Token").fill(bob)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("bob (viewer)")).to_be_visible()
        page.reload()
        expect(page.get_by_text("bob (viewer)")).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_text("You have logged out.")).to_be_visible()
        page.reload()
        expect(page.get_by_text("This service needs a token.")).to_be_visible()
