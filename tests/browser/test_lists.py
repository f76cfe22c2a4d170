"""Lists of hosts, groups and machines in the portal: filters and the place in a list are in the
address, and what a host has many of comes in pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from forewarn.testing import Service
from helpers.browser import go, portal
from helpers.token_api import Api

MANY = 120
FLEET = {
    "hosts": [{"name": "big", "labels": {"row": "1"}}, {"name": "small", "labels": {"row": "2"}}],
    "groups": [
        *(
            {
                "name": group,
                "kind": "scale-set",
                "machines": [{"name": f"{group}_{n}", "host": "big"} for n in range(MANY // 2)],
            }
            for group in ("api", "web")
        ),
        {"name": "db", "kind": "standalone", "machines": [{"name": "db-0", "host": "small"}]},
    ],
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(sockets=True) as service:
        assert Api(service.control_url).call("PUT", "/v1/fleet", FLEET).status == 200
        yield service


def test_lists_are_filtered_and_paged_and_lead_to_each_other(
    browser: Browser, service: Service
) -> None:
    with portal(browser, service, "/fleet") as page:
        page.get_by_role("link", name="hosts", exact=True).click()
        expect(page.get_by_role("table")).to_contain_text("2 hosts")
        page.get_by_label("Label").fill("row=1")
        page.get_by_label("Label").press("Enter")
        expect(page).to_have_url(f"{service.control_url}/ui/hosts?label=row%3D1")
        expect(page.get_by_role("row")).to_have_count(2)
        page.get_by_role("link", name=str(MANY), exact=True).click()
        expect(page).to_have_url(f"{service.control_url}/ui/machines?host=big")
        expect(page.get_by_role("row")).to_have_count(101)
        page.get_by_role("link", name="Next page").click()
        expect(page.get_by_role("row")).to_have_count(21)
        page.reload()
        expect(page.get_by_role("row")).to_have_count(21)
        page.get_by_role("link", name="First page").click()
        expect(page.get_by_role("row")).to_have_count(101)
        go(page, "/groups?kind=standalone")
        expect(page.get_by_role("row").last).to_contain_text("db")
        page.get_by_label("Enabled").select_option("yes")
        expect(page.get_by_text("No group matches. Change the filters above.")).to_be_visible()
        page.get_by_role("link", name="Clear").click()
        expect(page.get_by_role("row")).to_have_count(4)


def test_the_machines_of_a_host_come_in_pages_and_their_events_at_once(
    browser: Browser, service: Service
) -> None:
    service.restart("api_0")
    reads: list[str] = []
    with portal(browser, service, "/hosts/big") as page:
        page.on("request", lambda request: reads.append(request.url))
        page.reload()
        table = page.get_by_role("table").filter(has_text="100 machines on this page")
        expect(table.get_by_role("row").nth(1)).to_contain_text("Reboot")
        page.get_by_role("link", name="Next machines").click()
        expect(
            page.get_by_role("table").filter(has_text="20 machines on this page")
        ).to_be_visible()
        page.get_by_role("link", name="First machines").click()
        expect(page).to_have_url(f"{service.control_url}/ui/hosts/big")
    assert not [url for url in reads if "/v1/events/" in url]
