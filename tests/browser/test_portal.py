"""The portal in a browser: what its pages show, and that they follow what happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.browser import portal
from helpers.token_api import Api, token

FLEET = """
hosts: [host-a, host-b]
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


def test_the_fleet_is_the_same_as_a_picture_and_as_a_table(
    browser: Browser, service: Service
) -> None:
    service.schedule("Reboot", "web_0")
    with portal(browser, service, "/fleet") as page:
        expect(page.get_by_text("2 machines on 2 hosts")).to_be_visible()
        page.get_by_text("The same as a table").click()
        row = page.get_by_role("row").filter(has_text="host-a")
        expect(row.get_by_role("cell").nth(1)).to_have_text("healthy")
        expect(row.get_by_role("cell").nth(5)).to_have_text("1")  # scheduled
        page.get_by_label("With machines that are").select_option("scheduled")
        expect(page).to_have_url(f"{service.control_url}/ui/fleet?state=scheduled")
        expect(page.get_by_text("1 machine on 1 host")).to_be_visible()
        page.get_by_label("With machines that are").select_option("")
        api = Api(service.control_url)
        assert api.post("/v1/hosts/host-b/cordon", {}).status == 200
        assert api.post("/v1/hosts/host-b/fail", {}).status == 200
        row = page.get_by_role("row").filter(has_text="host-b")
        expect(row.get_by_role("cell").nth(1)).to_have_text("failed, cordoned")
        page.get_by_label("Hosts that are").select_option("failed")
        expect(page).to_have_url(f"{service.control_url}/ui/fleet?health=failed")
        expect(page.get_by_text("1 machine on 1 host")).to_be_visible()
        page.get_by_label("Hosts that are").select_option("degraded")
        expect(page.get_by_text("No host matches. Change the filters above.")).to_be_visible()


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
