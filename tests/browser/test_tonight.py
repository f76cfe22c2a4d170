"""What is going to be disturbed tonight, in the portal: found in one click, as a calendar and as a
table, by host, rack and group, on paper, and for tenants."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, expect

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.browser import go, portal, serious
from helpers.token_api import Api, token

FLEET = """
hosts: [{name: h1, labels: {rack: r1}}, {name: h2, labels: {rack: r2}}]
groups:
  - name: web
    kind: scale-set
    policy:
      windows: ["22:00-04:00 Europe/Berlin"]
      blackouts: ["2027-01-16 01:00 to 2027-01-16 02:00"]
    machines: [{name: web_0, host: h1}, {name: web_1, host: h2, update_domain: 1}]
  - {name: sql, kind: standalone, machines: [{name: sql-0, host: h2}]}
"""
NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True, start=NOON) as service:
        for machine in ("sql-0", "web_1"):
            service.document(machine)
        service.schedule("Reboot", "web_0", duration=600)
        service.schedule("Redeploy", "sql-0", notice="2h", duration=60)
        yield service


def test_what_happens_tonight_is_one_click_away(browser: Browser, service: Service) -> None:
    with portal(browser, service, "/", bypass_csp=True, timezone_id="Europe/Berlin") as page:
        page.get_by_role("navigation").get_by_role("link").nth(2).click()
        expect(page.get_by_role("heading", name="Tonight")).to_be_visible()
        expect(page.locator("main")).to_contain_text("2 machines on 2 hosts are disturbed.")
        expect(page.locator("main")).to_contain_text("2 of 2 announced disturbances are not")
        expect(page.locator("main")).to_contain_text("2 machines were never shown")
        calendar = page.get_by_role("table").last
        expect(calendar.get_by_role("row")).to_have_count(3)
        expect(calendar.get_by_role("row").nth(1)).to_contain_text("web")
        web = calendar.locator("rect").first
        title = "Reboot of web_0: scheduled, Fri, Jan 15 22:00 GMT+1 (21:00 UTC)"
        expect(web.locator("title")).to_contain_text(title)
        windows = page.get_by_role("table").first
        expect(windows.locator("rect.window")).to_have_count(1)
        expect(windows.locator("rect.blackout")).to_have_count(1)
        assert serious(page) == []
        page.get_by_label("Summed by").select_option("rack")
        expect(calendar.get_by_role("row").nth(1)).to_contain_text("r1")
        calendar.get_by_role("link", name="r2", exact=True).click()
        expect(page).to_have_url(f"{service.control_url}/ui/tonight?host_label=rack%3Dr2")
        expect(page.locator("main")).to_contain_text("1 machine on 1 host is disturbed.")
        page.get_by_role("link", name="Clear").click()
        page.get_by_role("combobox").last.select_option("table")
        row = page.get_by_role("table").last.get_by_role("row").nth(1)
        expect(row).to_contain_text("Redeploy of sql-0")
        expect(row).to_contain_text("Fri, Jan 15 15:00 GMT+1 (14:00 UTC)")
        page.get_by_label("From").fill("2027-01-20")
        expect(page.get_by_text("Nothing is going to be disturbed.")).to_be_visible()
        expect(page).to_have_url(f"{service.control_url}/ui/tonight?as=table&day=2027-01-20")
        page.reload()
        expect(page.get_by_text("Wed, Jan 20 00:00 GMT+1 (2027-01-19 23:00 UTC)")).to_be_visible()


def test_a_printed_page_has_all_rows(browser: Browser, service: Service) -> None:
    with portal(browser, service, "/tonight?by=group") as page:
        page.emulate_media(media="print")
        calendar = page.get_by_role("table").last
        for group in ("sql", "web"):
            expect(calendar.get_by_role("link", name=group, exact=True).first).to_be_visible()
        expect(page.get_by_label("Summed by")).to_be_hidden()


def test_a_tenant_sees_tonight_what_is_its_own(browser: Browser, service: Service) -> None:
    token(service, "admin", Role.ADMIN)
    shop = token(service, "shop", Role.TENANT, groups=("web",))
    with portal(browser, service, "/tonight") as page:
        page.get_by_label("Token").fill(shop.secret.text)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("main")).to_contain_text("1 machine on 1 host is disturbed.")
        expect(page.locator("main")).not_to_contain_text("sql")
        for link in page.locator("main tbody a").all():  # and none to hosts, which it does not see
            assert "/ui/hosts" not in str(link.get_attribute("href"))
        expect(page.get_by_role("link", name="web", exact=True).first).to_be_visible()
        assert Api(service.control_url, shop.secret.text).get("/v1/tonight?group=sql").status == 403
        go(page, "/")  # when, why, and what they can do
        row = page.get_by_role("row").filter(has_text="web_0")
        expect(row).to_contain_text("not before Fri, Jan 15 21:00 UTC")
        expect(row.locator(".reason")).to_contain_text("notice has not passed")
        expect(row.get_by_role("button", name="Approve…")).to_be_visible()
        expect(row.get_by_role("button", name="Postpone…")).to_have_count(0)  # by the policy
        expect(page.get_by_role("region", name="Virtual clock")).not_to_contain_text("nothing")
