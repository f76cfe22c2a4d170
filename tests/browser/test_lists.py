"""Lists of hosts, groups and machines in the portal: filters and the place in a list are in the
address, and what a host has many of comes in pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from forewarn.testing import Service
from helpers.browser import go, portal
from helpers.token_api import Api

MANY = 120
FLEET: dict[str, Any] = {
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
        page.get_by_label("Fleet").get_by_role("link", name="Hosts").click()
        expect(page.get_by_role("table")).to_contain_text("2 hosts")
        page.get_by_role("textbox", name="Label").fill("row=1")
        page.get_by_role("textbox", name="Label").press("Enter")
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
        page.get_by_role("combobox", name="Enabled").select_option("yes")
        expect(page.get_by_text("No group matches. Change the filters above.")).to_be_visible()
        page.get_by_role("link", name="Clear").click()
        expect(page.get_by_role("row")).to_have_count(4)


def test_order_and_columns_of_every_list_are_in_its_address(
    browser: Browser, service: Service
) -> None:
    def first() -> Locator:
        return page.get_by_role("row").nth(1)

    with portal(browser, service, "/hosts") as page:
        page.get_by_role("columnheader", name="Machines").get_by_role("link").click()
        expect(page).to_have_url(f"{service.control_url}/ui/hosts?order=machines")
        expect(first()).to_contain_text("big")
        page.get_by_role("combobox", name="Order").select_option("by name")
        expect(page).to_have_url(f"{service.control_url}/ui/hosts")
        page.get_by_label("Fleet").get_by_role("link", name="Machines").click()
        page.get_by_role("columnheader", name="Last poll").get_by_role("link").click()
        expect(page.get_by_role("columnheader", name="Last poll")).to_have_attribute(
            "aria-sort", "other"
        )
        page.get_by_text("Columns", exact=True).click()
        page.get_by_role("checkbox", name="Update domain").uncheck()
        page.get_by_role("link", name="Next page").click()
        page.reload()
        expect(page.get_by_role("columnheader", name="Last poll")).to_be_visible()
        expect(page.get_by_role("columnheader", name="Update domain")).to_be_hidden()
        expect(page.get_by_role("combobox", name="Order")).to_have_value("last_poll")
        for path in ("/groups", "/events", "/rollouts", "/history"):
            go(page, path)
            page.get_by_text("Columns", exact=True).click()
            page.get_by_role("checkbox").last.uncheck()
            expect(page).to_have_url(re.compile("hide="))


def test_windows_lead_to_machines_and_groups_to_windows(browser: Browser) -> None:
    fleet = {
        **FLEET,
        "maintenance": [{"name": "nights", "select": "tier=db", "windows": ["sun 22:00-04:00"]}],
    }
    fleet["groups"] = [
        *FLEET["groups"],
        {
            "name": "cache",
            "kind": "standalone",
            "labels": {"tier": "db"},
            "policy": {"windows": ["sat 01:00-02:00"]},
            "machines": [{"name": "cache-0", "host": "big"}],
        },
    ]
    with Service(sockets=True) as service:
        assert Api(service.control_url).call("PUT", "/v1/fleet", fleet).status == 200
        with portal(browser, service, "/groups") as page:
            expect(page.get_by_role("row").filter(has_text="cache")).to_contain_text("sat 01:00")
            page.get_by_role("link", name="cache", exact=True).click()
            page.get_by_role("link", name="group cache; nights").click()
            page.get_by_role("link", name="tier=db").click()
            expect(page.get_by_role("row").nth(1)).to_contain_text("cache-0")
            expect(page.get_by_role("row")).to_have_count(2)
            page.get_by_label("Fleet").get_by_role("link", name="Windows").click()
            page.get_by_role("main").get_by_role("link", name="tonight").click()
            expect(page.get_by_role("heading", name="Tonight")).to_be_visible()


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
