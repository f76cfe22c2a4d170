"""What can be done in the portal: nothing happens without a confirmation that says whom it
concerns, and nothing is done to a state that the page has not shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

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
  - name: sql
    kind: availability-set
    machines:
      - {name: sql-0, host: host-a, update_domain: 0}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


def ask(page: Page, verb: str) -> Locator:
    """Press the button of a verb, and return the dialog that asks whether it is meant."""
    page.get_by_role("button", name=f"{verb}…", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Back")).to_be_focused()
    return dialog


def confirm(dialog: Locator, label: str) -> Request:
    """Press the button that confirms, and return the request that it sends."""
    with dialog.page.expect_request(lambda request: request.method == "POST") as sent:
        dialog.get_by_role("button", name=label, exact=True).click()
    return sent.value


def test_a_confirmation_says_whom_it_concerns_and_what_it_shortens(
    browser: Browser, service: Service
) -> None:
    event = service.schedule("Reboot", "web_0")
    with portal(browser, service, f"/events/{event.id}") as page:
        dialog = ask(page, "Approve")
        expect(dialog).to_contain_text("15 min earlier")
        expect(dialog.locator(".concerned")).to_contain_text("1 machineweb_0")
        expect(dialog.locator(".concerned")).to_contain_text("1 groupweb")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("button", name="Approve…")).to_be_focused()
        request = confirm(ask(page, "Approve"), "Approve")
        assert request.headers["if-match"]
        assert request.headers["idempotency-key"]
        expect(dialog).to_have_count(0)
        expect(page.locator(".page-head .badge")).to_have_text("Started")
        expect(page.get_by_role("button", name="Approve…")).to_have_count(0)
        expect(page.locator(".tasks")).to_contain_text("Approve Reboot of web_0 done")


def test_a_refusal_is_shown_in_the_words_of_the_service(browser: Browser, service: Service) -> None:
    with portal(browser, service, "/hosts/host-a", refused=(400,)) as page:
        dialog = ask(page, "Maintain")
        expect(dialog.locator(".concerned")).to_contain_text("2 machinessql-0, web_0")
        dialog.get_by_label("Notice", exact=True).fill("1m")
        confirm(dialog, "Announce the maintenance")
        refusal = dialog.get_by_role("alert")
        expect(refusal).to_contain_text("a Freeze needs at least 15 min of notice, not 1 min")
        expect(refusal).to_contain_text("Tick “Allow less than the minimum notice” to override.")
        expect(page.locator(".tasks")).to_contain_text("Maintain host-a refused")
        dialog.get_by_label("Allow less than the minimum notice").check()
        confirm(dialog, "Announce the maintenance")
        expect(dialog).to_contain_text("done")
        expect(page.locator(".explanation")).to_contain_text("2 events about it")


def test_what_has_changed_since_it_was_shown_is_shown_anew(
    browser: Browser, service: Service
) -> None:
    with portal(browser, service, "/hosts/host-a", refused=(412,)) as page:
        dialog = ask(page, "Cordon")
        expect(dialog).to_contain_text("It is healthy.")
        Api(service.control_url).call("POST", "/v1/hosts/host-a/degrade", {})
        confirm(dialog, "Cordon")
        expect(dialog.get_by_role("alert")).to_contain_text("It has changed in the meantime")
        expect(dialog).to_contain_text("It is degraded, with 2 events planned")
        assert not Api(service.control_url).get("/v1/hosts/host-a").json()["cordoned"]
        confirm(dialog, "Cordon")
        expect(dialog).to_have_count(0)
        assert Api(service.control_url).get("/v1/hosts/host-a").json()["cordoned"]


def test_what_is_sent_again_after_a_lost_answer_is_done_once(
    browser: Browser, service: Service
) -> None:
    with portal(browser, service, "/machines/web_0", lost=True) as page:
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
        confirm(dialog, "Restart")
        expect(dialog.get_by_role("alert")).to_contain_text("Whether it was done is not known.")
        confirm(dialog, "Send again")
        expect(dialog).to_contain_text("Restart web_0: done")
        assert keys[0] == keys[1]
        records = Api(service.control_url).get("/v1/history?what=raised").json()["records"]
        assert len(records) == 1


def test_what_destroys_something_has_to_be_meant(browser: Browser, service: Service) -> None:
    with portal(browser, service, "/machines/web_1") as page:
        dialog = ask(page, "Delete")
        expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
        dialog.get_by_label("Type web_1 to confirm").fill("web_0")
        expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
        dialog.get_by_label("Type web_1 to confirm").fill("web_1")
        confirm(dialog, "Delete")
        expect(dialog).to_contain_text("Delete web_1: done")
        dialog.get_by_role("button", name="Close").click()
        dialog = ask(page, "Stop all")
        expect(dialog).to_contain_text("3 machines")
        expect(dialog.get_by_role("button", name="Stop all")).to_be_disabled()
        dialog.get_by_label("Note", exact=True).fill("smoke in row 7")
        dialog.get_by_label("Stop the whole fleet").check()
        confirm(dialog, "Stop all")
        expect(page.locator(".halt")).to_contain_text("Stopped: the whole fleet")
        expect(page.locator(".halt")).to_contain_text("smoke in row 7")
        confirm(ask(page, "Release"), "Release")
        expect(page.locator(".halt")).to_have_count(0)
        expect(page.get_by_role("button", name="Stop all…")).to_be_visible()
        expect(page.locator(".tasks")).to_contain_text("2 earlier")


def test_a_rollout_starts_after_its_plan_was_shown(browser: Browser, service: Service) -> None:
    with portal(browser, service, "/rollouts") as page:
        dialog = ask(page, "Start a rollout")
        dialog.get_by_label("Groups", exact=True).fill("web")
        assert confirm(dialog, "Show the plan").url.endswith("/v1/rollouts/plan?steps=8")
        expect(dialog.get_by_role("row")).to_have_count(3)
        expect(dialog.get_by_role("button", name="Back")).to_be_focused()
        confirm(dialog, "Start it")
        expect(page.locator(".tasks")).to_contain_text("Start a rollout done: it is running")
        page.locator(".tasks").get_by_role("link", name="Start a rollout").click()
        confirm(ask(page, "Pause"), "Pause")
        expect(page.get_by_role("button", name="Resume…")).to_be_visible()


def test_nobody_is_offered_what_they_may_not_do(browser: Browser, service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    token(service, "alice", Role.ADMIN)
    viewer = token(service, "bob", Role.VIEWER).secret.text
    limited = token(service, "carol", Role.OPERATOR, groups=("web",)).secret.text
    for secret, of_event, of_machine in (
        (viewer, [], []),
        (limited, ["Approve…", "Postpone…", "Cancel…"], ["Restart…", "Redeploy…", "Delete…"]),
    ):
        with portal(browser, service, f"/events/{event.id}") as page:
            page.get_by_label("Token").fill(secret)
            page.get_by_role("button", name="Log in").click()
            expect(page.locator(".explanation")).to_be_visible()
            expect(page.locator(".verbs button")).to_have_text(of_event)
            page.goto(f"{service.control_url}/ui/machines/web_0")
            expect(page.locator(".facts").first).to_be_visible()
            expect(page.locator(".verbs button")).to_have_text(of_machine)
