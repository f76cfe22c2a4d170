"""Everybody can use the portal: with a screen reader, with the keyboard alone, on a small screen,
on paper, in light and dark, and without motion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.browser import go, portal, serious, settled
from helpers.token_api import Api, token

FLEET = """
hosts: [{name: host-a, labels: {rack: r1}}, host-b]
maintenance: [{name: nights, select: tier=sql, windows: ["sun 22:00-04:00"]}]
groups:
  - name: web
    kind: scale-set
    labels: {tier: web}
    machines:
      - {name: web_0, host: host-a, update_domain: 0}
      - {name: web_1, host: host-b, update_domain: 1}
      - {name: web_2, host: host-b, update_domain: 2, spot: true}
  - name: sql
    kind: availability-set
    labels: {tier: sql}
    machines: [{name: sql-0, host: host-a, update_domain: 0}]
"""
PAGES = (
    *("/", "/fleet", "/fleet?by=group", "/events?past=true", "/events/{event}", "/history"),
    *("/hosts/host-a", "/groups/web", "/machines/web_0", "/rollouts", "/rollouts/{rollout}"),
    *("/hosts", "/groups", "/machines", "/maintenance"),
)
# Cells that are higher than they are wide: words below each other.
RIBBONS = """[...document.querySelectorAll("main td:not(.space)")]
  .filter(cell => cell.innerText.length > 12 && cell.offsetHeight > cell.offsetWidth)
  .map(cell => cell.innerText)"""
# Cells of which something is outside their row.
CUT = """rows => rows.flatMap(row => {
  const { right, bottom } = row.getBoundingClientRect();
  const cut = one => one.right > right + 1 || one.bottom > bottom + 1;
  const outside = [...row.cells].filter(cell => cut(cell.getBoundingClientRect()));
  return outside.map(cell => cell.innerText);
})"""
ON_TOP = """element => {
  const { x, y, width, height } = element.getBoundingClientRect();
  return element.contains(document.elementFromPoint(x + width - 1, y + height / 2));
}"""
EMPTY = ("/events?type=Preempt", "/fleet?label=none", "/history?what=finished", "/nowhere")
DIALOGS = (
    ("/events/{event}", "Approve"),
    ("/machines/web_0", "Delete"),
    ("/hosts/host-a", "Maintain"),
    ("/rollouts/{rollout}", "Abort"),
    ("/rollouts", "Start a rollout"),
    ("/rollouts", "Halt all"),
)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


@pytest.fixture(scope="module")
def names(service: Service) -> dict[str, str]:
    """The ids of what goes on in the fleet: something that has started, something that is held by
    it, something that waits for a window, and what is stopped."""
    api = Api(service.control_url)
    service.document("web_0")
    rollout = api.post("/v1/rollouts", {"type": "Freeze", "groups": ["web"], "bake": 600}).json()
    service.clock.advance("16m")
    api.post("/v1/events", {"type": "Freeze", "machines": ["sql-0"], "ticket": "CHG-7"})
    event = api.post("/v1/events", {"type": "Reboot", "machines": ["web_1"]}).json()
    api.post("/v1/halts", {"groups": ["sql"], "note": "smoke in row 7"})
    nights = {"select": "tier=none", "windows": ["22:00-04:00"]}
    assert api.call("PUT", "/v1/maintenance/nights", nights).status == 200
    return {"event": event["id"], "rollout": rollout["id"]}


def check(page: Page, where: str, part: str = "html") -> None:
    """Nothing is seriously wrong in light, nor with the colours in dark."""
    assert serious(page, part=part) == [], where
    page.emulate_media(color_scheme="dark")
    assert serious(page, "color-contrast", part=part) == [], f"{where}, dark"
    page.emulate_media(color_scheme="light")


def test_every_page_is_accessible(
    browser: Browser, service: Service, names: dict[str, str]
) -> None:
    with portal(browser, service, bypass_csp=True) as page:
        for path in (*PAGES, *EMPTY):
            go(page, path.format(**names))
            for summary in page.locator("main summary").all():
                summary.click()
            if path in EMPTY:  # in the colours of the others
                assert serious(page, part="main") == [], path
            else:
                check(page, path, "main" if path != "/" else "html")
        page.get_by_role("combobox", name="Search").fill("web")
        expect(page.get_by_role("option")).to_have_count(4)
        check(page, "search", ".search")


def test_every_dialog_is_accessible(
    browser: Browser, service: Service, names: dict[str, str]
) -> None:
    with portal(browser, service, bypass_csp=True) as page:
        for path, verb in DIALOGS:
            go(page, path.format(**names))
            page.get_by_role("button", name=f"{verb}…", exact=True).click()
            dialog = page.get_by_role("dialog")
            expect(dialog.locator("fieldset")).to_be_visible()
            for summary in dialog.locator("summary").all():
                summary.click()
            check(page, verb, "dialog")
            if verb == "Start a rollout":
                dialog.get_by_label("Groups", exact=True).fill("sql")
                dialog.get_by_role("button", name="Show the plan").click()
                expect(dialog.locator(".preview")).to_be_visible()
                check(page, "plan", "dialog")
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)


def test_what_is_shown_without_a_fleet_or_a_connection_is_accessible(browser: Browser) -> None:
    with Service(sockets=True) as service:
        with portal(browser, service, bypass_csp=True, lost=True) as page:
            page.route("**/v1/feed**", lambda route: route.abort())
            page.reload()
            expect(page.get_by_text("connection lost")).to_be_visible()
            expect(page.get_by_text("There are no machines yet.")).to_be_visible()
            check(page, "lost")
            page.route("**/v1/**", lambda route: route.abort())
            page.reload()
            expect(page.get_by_role("alert")).to_have_text("The service cannot be reached.")
            check(page, "unreachable")
            page.unroute_all()
            expect(page.get_by_role("heading", name="Status")).to_be_visible()
        token(service, "alice", Role.ADMIN)
        with portal(browser, service, bypass_csp=True) as page:
            expect(page.get_by_label("Token")).to_be_focused()
            check(page, "login")


def test_everything_is_reached_with_the_keyboard(
    browser: Browser, service: Service, names: dict[str, str]
) -> None:
    focused = "document.activeElement"
    with portal(browser, service, f"/events/{names['event']}") as page:
        settled(page)
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport(ratio=1)
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.keyboard.press("/")
        search = page.get_by_role("combobox", name="Search")
        expect(search).to_be_focused()
        search.press_sequentially("web")
        expect(page.get_by_role("listbox")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("listbox")).to_be_hidden()
        page.keyboard.press("Escape")
        expect(search).not_to_be_focused()
        seen = set()
        for _ in range(len(page.locator("a, button, input, select, summary").all())):
            page.keyboard.press("Tab")
            seen.add(page.evaluate(f"{focused}.textContent || {focused}.id"))
            shown = page.evaluate(f"getComputedStyle({focused}).outlineStyle")
            assert shown != "none" or page.evaluate(f"{focused} === document.body")
        assert {"Fleet", "Approve…", "Halt all…", "+1 min"} <= seen
        button = page.get_by_role("button", name="Cancel…", exact=True)
        button.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("button", name="Back")).to_be_focused()
        expect(dialog.locator("fieldset")).to_be_visible()
        for _ in range(6):
            page.keyboard.press("Tab")
            assert page.evaluate(f"{focused} === document.body || !!{focused}.closest('dialog')")
        page.keyboard.press("Escape")
        expect(button).to_be_focused()
        page.get_by_role("link", name="Fleet").press("Enter")
        expect(page.locator("main")).to_be_focused()


def test_countdowns_are_silent_and_nothing_moves(
    browser: Browser, service: Service, names: dict[str, str]
) -> None:
    live = ":is([aria-live], [role=status], [role=alert], [role=log], [role=timer])"
    with portal(browser, service, reduced_motion="reduce") as page:
        for path in PAGES:
            go(page, path.format(**names))
            assert page.locator(f"{live} time[title], {live} meter").count() == 0, path
            moving = "[...document.querySelectorAll('*')].filter(e => e.getAnimations().length)"
            assert page.evaluate(f"{moving}.length") == 0, path
        go(page, "/")
        countdown = page.locator("time[title]").first
        label = countdown.get_attribute("aria-label")
        assert label is not None
        assert label.endswith("UTC")  # what a screen reader reads: the time, which does not change


def test_the_picture_of_the_fleet_is_also_a_table_with_links(
    browser: Browser, service: Service, names: dict[str, str]
) -> None:
    del names
    with portal(browser, service, "/fleet?by=group") as page:
        expect(page.locator(".fleet-map")).to_have_attribute("aria-hidden", "true")
        row = page.get_by_role("row").filter(has_text="web")
        expect(row.get_by_role("cell").first).to_have_text("web")
        row.get_by_role("link", name="web").press("Enter")
        expect(page.get_by_role("heading", name="Group web")).to_be_visible()


def test_a_printed_page_has_whole_tables_in_black_on_white(
    browser: Browser, service: Service, names: dict[str, str]
) -> None:
    with portal(browser, service, color_scheme="dark") as page:
        page.emulate_media(media="print")
        for path in PAGES:
            go(page, path.format(**names))
            expect(page.get_by_role("navigation")).to_be_hidden()
            expect(page.get_by_role("region", name="Virtual clock")).to_be_hidden()
            expect(page.locator("main table").last).to_be_visible()
            assert page.locator("button:visible, input:visible").count() == 0, path
            colours = "e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).color]"
            expected = ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
            assert page.locator("body").evaluate(colours) == expected, path
        go(page, "/")
        countdown = page.locator("td > time[title]").first
        printed = countdown.evaluate("e => getComputedStyle(e, '::after').content")
        assert printed == f'"{countdown.get_attribute("title")}"'  # not "in 5 min"


@pytest.mark.parametrize("width", [768, 375])
def test_a_small_screen_is_not_scrolled_sideways(
    browser: Browser, service: Service, names: dict[str, str], width: int
) -> None:
    with portal(browser, service, width=width) as page:
        for path in (*PAGES, "/tonight", "/tonight?as=table"):
            go(page, path.format(**names))
            page.locator("main details").evaluate_all("all => all.forEach(one => one.open = true)")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.evaluate(RIBBONS) == [], path
            here = page.locator(".bar [aria-current=page]")
            for one in (here, page.locator("#search")):
                assert page.evaluate(ON_TOP, one.element_handle()), f"{path}: hidden in the header"
        page.get_by_role("button", name="Halt all…").click()
        expect(page.get_by_role("dialog")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("width", [1000, 768, 375])
def test_tonight_fits_a_small_screen(browser: Browser, service: Service, width: int) -> None:
    with portal(browser, service, width=width) as page:
        for path in ("/tonight", "/tonight?as=table", "/tonight?by=group&hours=168"):
            go(page, path)
            table = page.locator(".scroll").last
            assert table.evaluate("one => one.scrollWidth <= one.clientWidth"), path
            rows = table.locator("tbody tr:not([aria-hidden])")
            expect(rows.first).to_be_visible()
            assert rows.evaluate_all(CUT) == [], path
