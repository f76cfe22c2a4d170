"""A real browser on the portal: Debian's Chromium, driven by Playwright. Its headless shell has the
same engine without the windows around it, and needs half the time.

Whatever a page does that it must not do fails the test that did it: an error on the console, a
violation of the Content-Security-Policy, a request to anywhere else, a script that asks something.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    expect,
    sync_playwright,
)

from forewarn.node import Node
from forewarn.testing import Service
from helpers.netns import require
from helpers.waiting import LIMIT

CHROMIUM = Path("/usr/bin/chromium-headless-shell")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
SERIOUS = ("serious", "critical")
ALIKE = ("tbody tr:nth-child(n+3)", ".facts > div:nth-child(n+5)", "datalist")
PATIENCE = LIMIT * 1_000  # milliseconds

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for the tests of a file: while it is there, this thread cannot run another loop."""
    require(CHROMIUM.exists(), "Chromium (apt-get install chromium-headless-shell)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@contextmanager
def portal(
    browser: Browser,
    service: Service | Node,
    path: str = "/",
    *,
    width: int = 1200,
    refused: tuple[int, ...] = (),
    lost: bool = False,
    issuer: str = "",
    **how: Any,
) -> Iterator[Page]:
    """Open a page of the portal, and be strict about what it does. Which requests may be `refused`
    or `lost` has to be said: the browser notes them on its console. Only to log in may it go
    elsewhere, to the `issuer`."""
    wrong: list[str] = []

    def note_console(message: ConsoleMessage) -> None:
        expected = any(f"status of {status} " in message.text for status in refused)
        expected |= lost and "net::ERR_" in message.text
        if message.type in ("error", "warning") and not expected:
            wrong.append(f"console: {message.text}")

    def note_request(request: Request) -> None:
        places = (f"{service.control_url}/", *([f"{issuer}/authorize?"] if issuer else []))
        if not request.url.startswith(places):
            wrong.append(f"a request to {request.url}")

    def note_dialog(dialog: Dialog) -> None:
        wrong.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()

    context = browser.new_context(
        base_url=f"{service.control_url}/ui/", viewport={"width": width, "height": 800}, **how
    )
    context.set_default_timeout(PATIENCE)
    context.on("console", note_console)
    context.on("weberror", lambda error: wrong.append(f"error: {error.error}"))
    context.on("request", note_request)
    context.on("dialog", note_dialog)
    page = context.new_page()
    try:
        page.goto(f"{service.control_url}/ui{path}")
        yield page
        assert wrong == [], "; ".join(wrong)
    finally:
        context.close()


def serious(page: Page, *rules: str, part: str = "html") -> list[str]:
    """Return what is seriously wrong with a part of a page for people who cannot see it well or use
    no mouse, by all rules or by some. The page has to be opened with bypass_csp. Of what is alike,
    the rows of a table and the facts in a list, the first ones are looked at."""
    options: dict[str, object] = {"resultTypes": ["violations"], "iframes": False, "preload": False}
    if rules:
        options["runOnly"] = list(rules)
    where = {"include": [[part]], "exclude": [[rest] for rest in ALIKE]}
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate("([where, options]) => axe.run(where, options)", [where, options])
    return [
        f"{one['id']}: {[node['html'] for node in one['nodes']]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
    ]


GO = """async path => {
  history.pushState(null, '', path);
  dispatchEvent(new PopStateEvent('popstate'));
  await new Promise(shown => requestAnimationFrame(() => setTimeout(shown)));
}"""


def go(page: Page, path: str) -> None:
    """Go to another page of the portal as its own links do, and wait for it."""
    page.evaluate(GO, f"/ui{path}")
    settled(page)


def settled(page: Page) -> None:
    """Wait until the page shows what it has asked the service for."""
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
