"""The portal under load and loss: what it shows is true whatever happens to its connection, and a
large or busy fleet costs it little."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from forewarn.core.access import Role
from forewarn.node.config import Address
from forewarn.testing import Service
from helpers.browser import go, portal, settled
from helpers.free_ports import free_port
from helpers.serve_process import FLEET as SERVED_FLEET
from helpers.serve_process import ServeProcess, running_service
from helpers.token_api import api_with_token, token
from helpers.waiting import until

FLEET = """
groups:
  - {name: web, kind: standalone, machines: [{name: web_0}]}
  - {name: sql, kind: standalone, machines: [{name: sql_0}]}
"""
LOST = "connection lost; trying again"
ENDED = "The session has ended. Log in again."
MOST_MOVED = 300_000  # bytes for a page of a large fleet
HOSTS, GROUP = 1_000, 100  # a machine on each
STORM = 150  # commits

# Note what the feed tells the page, beside whatever the page does with it.
HEAR = """async () => {
  const { onChange } = await import("/ui/live.js");
  window.heard = [];
  onChange((change) => heard.push(change?.seq ?? 0));
}"""

# As if another tab were in front of it, or no longer.
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


def heard(page: Page) -> list[int]:
    """Return the commits that the page was told of; it is also told to look again, without one."""
    return [seq for seq in page.evaluate("heard") if seq]


def shown(page: Page) -> set[str]:
    """Return the beginnings of the ids of all events in the table."""
    return set(page.locator("main tbody tr td:first-child code").all_inner_texts())


class Restarted:
    """A service that is killed and started again, always at the same address."""

    def __init__(self, directory: Path) -> None:
        self.control_url = f"http://127.0.0.1:{free_port()}"
        self.directory = directory
        self.settings = directory / "forewarn.toml"
        (directory / "state").mkdir(mode=0o700)
        (directory / "fleet.yaml").write_text(SERVED_FLEET)
        self.settings.write_text(
            f'metadata = "127.0.0.1:0"\ncontrol = "{self.control_url.removeprefix("http://")}"\n'
            'state = "state/forewarn.db"\nfleet = "fleet.yaml"\n'
        )


def raise_event(running: ServeProcess, machine: str) -> str:
    """Return the beginning of its id."""
    event = running.post("/v1/events", {"type": "Freeze", "machines": [machine]})
    return str(event["id"])[:8]


def test_a_page_misses_no_commit_when_the_service_is_killed_and_started_again(
    browser: Browser, tmp_path: Path
) -> None:
    service: Any = Restarted(tmp_path)
    with (
        running_service(tmp_path, service.settings) as first,
        portal(browser, service, "/events", lost=True) as page,
    ):
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        page.evaluate(HEAR)
        began = first.get("/v1/changes")["next"]
        events = {raise_event(first, "web-0")}
        expect(page.get_by_text(*events)).to_be_visible()
        first.running.process.kill()
        first.running.wait()
        expect(page.get_by_text(LOST)).to_be_visible()
        with running_service(tmp_path, service.settings) as second:
            events.add(raise_event(second, "web-1"))
            expect(page.get_by_text("live", exact=True)).to_be_visible()
            events.add(raise_event(second, "web-0"))
            until(lambda: shown(page) == events)
            commits = second.get(f"/v1/changes?after={began}")["commits"]
            assert {e["id"][:8] for c in commits for e in c.get("events", ())} == events
            assert heard(page) == [commit["seq"] for commit in commits]
            assert page.locator("main [role=alert]").count() == 0


def test_a_silent_service_is_shown_as_lost_although_the_connection_is_open(
    browser: Browser, service: Service
) -> None:
    with portal(browser, service, "/events", lost=True) as page:
        page.clock.install()
        page.reload()
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        page.evaluate(HEAR)
        page.route("**/v1/session", lambda _: None)  # no answer
        page.clock.fast_forward("00:45")
        page.clock.fast_forward("00:15")
        expect(page.get_by_text(LOST)).to_be_visible()
        service.schedule("Freeze", "web_0")
        before = len(heard(page))
        page.unroute("**/v1/session")
        page.clock.fast_forward("00:15")
        page.clock.fast_forward("00:15")
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        until(lambda: len(heard(page)) > before)
        assert heard(page)[-1] == service._session.node.feed.seq


def test_a_page_whose_changes_were_pruned_meanwhile_reads_again(
    browser: Browser, tmp_path: Path
) -> None:
    state = tmp_path / "state.db"
    with ExitStack() as pages, ExitStack() as lives:
        first = lives.enter_context(Service(FLEET, sockets=True, state=state))
        service: Any = SimpleNamespace(control_url=first.control_url)
        event = first.schedule("Freeze", "web_0")
        page = pages.enter_context(portal(browser, service, "/events", lost=True, refused=(410,)))
        expect(page.get_by_text(event.id[:8])).to_be_visible()
        page.evaluate(HEAR)
        lives.close()
        second = lives.enter_context(Service(sockets=True, state=state))
        node = second._session.node
        second.clock.advance("100d")
        event = second.schedule("Freeze", "sql_0")
        assert second._session.run(node.history.prune()) > 0
        expect(page.get_by_text(LOST)).to_be_visible()
        with page.expect_response(lambda answer: answer.status == 410):
            port = int(service.control_url.rpartition(":")[2])
            second._session.run(node.open_control(Address("127.0.0.1", port)))
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        until(lambda: shown(page) == {event.id[:8]})
        other = second.schedule("Freeze", "web_0")
        until(lambda: shown(page) == {event.id[:8], other.id[:8]})
        assert heard(page)[-1] == node.feed.seq
        assert page.locator("main [role=alert]").count() == 0


def log_in(page: Page, secret: str) -> None:
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("bob (viewer)")).to_be_visible()


def test_a_page_whose_session_has_ended_offers_to_log_in_again(
    browser: Browser, service: Service
) -> None:
    admin = api_with_token(service, "alice", Role.ADMIN)
    bob = token(service, "bob", Role.VIEWER).secret.text
    with portal(browser, service, refused=(401,)) as page:
        log_in(page, bob)
        other = page.context.new_page()
        other.goto(f"{service.control_url}/ui/fleet")
        expect(other.get_by_text("bob (viewer)")).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        expect(other.get_by_text(ENDED)).to_be_visible()
        other.close()
        log_in(page, bob)
        assert admin.post("/v1/tokens/bob/revoke", {}).status == 200
        expect(page.get_by_text(ENDED)).to_be_visible()
        until(lambda: service._session.node.feed.followers == 0)
        log_in(page, token(service, "bob", Role.VIEWER).secret.text)
        service.clock.advance("13h")
        expect(page.get_by_text(ENDED)).to_be_visible()
        assert page.url == f"{service.control_url}/ui/"


def test_a_hidden_page_stops_following_and_reads_again_when_it_is_visible(
    browser: Browser, service: Service
) -> None:
    feed = service._session.node.feed
    with portal(browser, service, "/events") as page:
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        until(lambda: feed.followers == 1)
        page.evaluate(HIDE, True)
        until(lambda: feed.followers == 0)
        event = service.schedule("Freeze", "web_0")
        page.evaluate(HIDE, False)
        expect(page.get_by_text(event.id[:8])).to_be_visible()
        until(lambda: feed.followers == 1)


@pytest.mark.parametrize("path", ["/", "/fleet", "/events"])
def test_many_changes_at_once_cause_few_requests(
    browser: Browser, service: Service, path: str
) -> None:
    with portal(browser, service, path) as page:
        page.clock.install()
        page.reload()
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        page.evaluate(HEAR)
        page.clock.pause_at(page.evaluate("Date.now() + 3_600_000"))
        settled(page)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        for _ in range(STORM):
            service.schedule("Freeze", "web_0")
        until(lambda: len(heard(page)) >= STORM)
        page.clock.run_for(1_000)
        until(lambda: len(requests) > 0)
        assert len(requests) == len(set(requests)), "something was read twice"
        assert len(requests) < STORM / 5


def test_a_large_fleet_fits_one_screen_and_its_table_is_drawn_as_far_as_it_is_seen(
    browser: Browser,
) -> None:
    hosts = ", ".join(f"{{name: host-{n}, labels: {{rack: r{n // 20}}}}}" for n in range(HOSTS))
    lines = [f"hosts: [{hosts}]", "groups:"]
    for n in range(HOSTS):
        if n % 100 == 0:
            lines.append(f"- {{name: web-{n // 100}, kind: scale-set, machines: [")
        lines.append(
            f"  {{name: web-{n // 100}_{n % 100}, host: host-{n}, update_domain: {n % 5}}},"
        )
        if n % 100 == 99:
            lines.append("  ]}")
    fleet = "\n".join(lines)
    with Service(fleet, sockets=True) as service, portal(browser, service, "/fleet") as page:
        expect(page.get_by_text("1,000 machines on 1,000 hosts")).to_be_visible()
        assert moved(page) < MOST_MOVED
        table, picture = page.get_by_role("table"), page.locator(".fleet-map")
        expect(table).to_have_attribute("aria-rowcount", str(HOSTS + 1))
        expect(table.get_by_role("link").first).to_have_text("host-0")
        assert table.get_by_role("row").count() < HOSTS / 5
        page.evaluate("document.querySelector('table').scrollIntoView(false)")
        expect(table.get_by_role("link").last).to_have_text(f"host-{HOSTS - 1}")
        assert table.get_by_role("row").count() < HOSTS / 5
        page.emulate_media(media="print")
        expect(table.get_by_role("link")).to_have_count(HOSTS)
        page.emulate_media(media="screen")
        for path in ("/fleet", "/fleet?sums=rack"):
            go(page, path)
            for width in (1440, 768, 375):
                page.set_viewport_size({"width": width, "height": 800})
                picture.evaluate("element => element.scrollIntoView()")
                expect(picture).to_be_in_viewport(ratio=0.99)  # parts of pixels
        expect(picture.locator("figure")).to_have_count(HOSTS // 20)


def moved(page: Page) -> int:
    """Return the bytes of all answers that the page has got, as they came over the network."""
    return int(
        page.evaluate(
            "performance.getEntries().reduce((sum, one) => sum + (one.transferSize ?? 0), 0)"
        )
    )
