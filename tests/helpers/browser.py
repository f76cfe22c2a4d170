"""A real browser on the portal: Debian's Chromium, driven by Playwright. Its headless shell has the
same engine without the windows around it, and needs half the time.

Whatever a page does that it must not do fails the test that did it: an error on the console, a
violation of the Content-Security-Policy, a request to anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from forewarn.testing import Service
from helpers.netns import require

CHROMIUM = Path("/usr/bin/chromium-headless-shell")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
SERIOUS = ("serious", "critical")


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
    service: Service,
    path: str = "/",
    *,
    width: int = 1200,
    refused: tuple[int, ...] = (),
    lost: bool = False,
    **how: Any,
) -> Iterator[Page]:
    """Open a page of the portal, and be strict about what it does. Which requests may be `refused`
    or `lost` has to be said: the browser notes them on its console."""
    wrong: list[str] = []

    def note_console(message: ConsoleMessage) -> None:
        expected = any(f"status of {status} " in message.text for status in refused)
        expected |= lost and "net::ERR_FAILED" in message.text
        if message.type in ("error", "warning") and not expected:
            wrong.append(f"console: {message.text}")

    def note_request(request: Request) -> None:
        if not request.url.startswith(f"{service.control_url}/"):
            wrong.append(f"a request to {request.url}")

    context = browser.new_context(
        base_url=f"{service.control_url}/ui/", viewport={"width": width, "height": 800}, **how
    )
    page = context.new_page()
    page.set_default_timeout(15_000)
    page.on("console", note_console)
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", note_request)
    try:
        page.goto(f"{service.control_url}/ui{path}")
        yield page
        assert wrong == []
    finally:
        context.close()


def serious(page: Page, *rules: str) -> list[str]:
    """Return what is seriously wrong with a page, by all rules or by some."""
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    found = Axe().run(page, options=options).response["violations"]
    return [f"{one['id']}: {one['nodes']}" for one in found if one["impact"] in SERIOUS]
