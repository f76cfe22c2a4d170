"""The measured browser: what a page has loaded, when it was drawn, for how long it was busy at a
time, and how much memory its scripts hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

CHROMIUM = "/usr/bin/chromium-headless-shell"
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")

# Tasks of more than 50 ms, and the first frame in which an element is there.
WATCH = """
window.measured = { longest: 0 };
new PerformanceObserver((list) => {
  const durations = list.getEntries().map((task) => task.duration);
  measured.longest = Math.max(measured.longest, ...durations);
}).observe({ type: "longtask", buffered: true });
measured.drawn = new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error("nothing was drawn")), 60_000);
  const look = () => {
    if (document.querySelector("%s")) requestAnimationFrame(() => resolve(performance.now()));
    else requestAnimationFrame(look);
  };
  look();
});
"""


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


class Watched:
    """A page, and what the browser says about it."""

    def __init__(self, page: Page, session: CDPSession) -> None:
        self.page = page
        self.moved = 0  # bytes, with headers, as they came over the network
        self.requests = 0
        self._session = session
        self._streamed: dict[str, int] = {}  # by request: bytes so far, until it is over
        session.on("Network.requestWillBeSent", self._sent)
        session.on("Network.dataReceived", self._received)
        session.on("Network.loadingFinished", self._finished)
        session.send("Network.enable")
        session.send("Performance.enable")

    def _sent(self, _: Any) -> None:
        self.requests += 1

    def _received(self, event: Any) -> None:
        id = event["requestId"]
        self._streamed[id] = self._streamed.get(id, 0) + event["encodedDataLength"]

    def _finished(self, event: Any) -> None:
        self._streamed.pop(event["requestId"], None)
        self.moved += int(event["encodedDataLength"])

    @property
    def bytes(self) -> int:
        return self.moved + sum(self._streamed.values())

    @property
    def drawn(self) -> float:
        """Milliseconds from the request of the page to the frame that shows what was waited for."""
        return float(self.page.evaluate("window.measured.drawn"))

    @property
    def longest(self) -> float:
        """Milliseconds of the longest task; 0 if none was longer than 50."""
        return float(self.page.evaluate("window.measured.longest"))

    def heap(self) -> float:
        """MB of the page's scripts."""
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        (used,) = (metric["value"] for metric in metrics if metric["name"] == "JSHeapUsedSize")
        return float(used) / 1e6


@contextmanager
def traced(browser: Browser, page: Page, tasks: list[float]) -> Iterator[None]:
    """Add how long each task of the page had the processor, in milliseconds."""
    browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
    try:
        yield
    finally:
        events = json.loads(browser.stop_tracing())["traceEvents"]
    names = [event for event in events if event.get("name") == "thread_name"]
    main = {
        (event["pid"], event["tid"]) for event in names if event["args"]["name"] == "CrRendererMain"
    }
    tasks += [
        event["tdur"] / 1e3
        for event in events
        if (event["pid"], event["tid"]) in main
        and "tdur" in event
        and event["name"].endswith("RunTask")
    ]


@contextmanager
def opened(browser: Browser, url: str, until: str) -> Iterator[Watched]:
    """A page that nothing is kept of from before, watched until an element is there."""
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    page = context.new_page()
    page.add_init_script(WATCH % until)
    watched = Watched(page, context.new_cdp_session(page))
    page.goto(url)
    try:
        yield watched
    finally:
        context.close()
