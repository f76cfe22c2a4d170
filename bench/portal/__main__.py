"""`make bench BENCH=portal`: measures, prints, and after a full run writes RESULTS.md."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from playwright.sync_api import Browser

from bench.platform.asking import Service, service
from bench.poll import processes, tools
from bench.poll.processes import Failed
from bench.poll.report import table
from bench.portal import browsing, plain
from bench.portal.browsing import opened
from bench.portal.guests import Waited
from bench.portal.serving import Ready, Storm
from forewarn import __version__

HERE = Path(__file__).parent
RESULTS, NOTES = HERE / "RESULTS.md", HERE / "NOTES.md"
NICE = -10
MACHINES, HOSTS = 100_000, 2_000
ROUNDS, QUICK_ROUNDS = 3, 1
EVENTS, SECONDS = 1_000, 10.0  # of a storm
GUESTS = 50
LOOK = 0.5  # seconds between two looks at the heap
NOBODY = "no page"
PAGES = {"Fleet": ("fleet", ".fleet-map path"), "Status": ("", "h1"), "Events": ("events", "h1")}
DRAWN, MOVED, LONGEST, HEAP, WHEEL = 2_000.0, 300.0, 200.0, 150.0, 200.0  # ms, kB, ms, MB, kB


@dataclass
class Page:
    """Of each load of the page of the fleet."""

    drawn: list[float] = field(default_factory=list)  # milliseconds
    plain: list[float] = field(default_factory=list)  # the same of the peer
    moved: list[float] = field(default_factory=list)  # kB
    requests: list[float] = field(default_factory=list)
    longest: list[float] = field(default_factory=list)  # milliseconds
    heap: list[float] = field(default_factory=list)  # MB


@dataclass
class Stormy:
    """Of each storm while a page was open, or none."""

    rate: list[float] = field(default_factory=list)  # commits a second
    longest: list[float] = field(default_factory=list)
    busiest: list[float] = field(default_factory=list)  # the longest by its processor time
    heap: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)  # of guests' polls, milliseconds
    p99: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.portal", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it works")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"{ROUNDS} by default")
    parser.add_argument("--within", type=Path, default=Path("/var/tmp"), help="on a real disk")
    options = parser.parse_args()
    try:
        _measure(
            QUICK_ROUNDS if options.quick else options.rounds,
            options.within,
            keep=not options.quick,
        )
    except Failed as failure:
        sys.exit(f"bench: {failure}")
    except KeyboardInterrupt:
        sys.exit("bench: stopped")


def _measure(rounds: int, within: Path, *, keep: bool) -> None:
    processes.prepare()
    with contextlib.suppress(PermissionError):
        os.nice(NICE)  # others may be at work here; what we start inherits it
    began = os.getloadavg()
    page, storms = Page(), {name: Stormy() for name in (NOBODY, *PAGES)}
    with (
        tempfile.TemporaryDirectory(prefix="bench-portal-", dir=within) as scratch,
        service(
            "bench.portal.serving", MACHINES, HOSTS, scratch, log=Path(scratch, "log")
        ) as measured,
        browsing.browser() as browser,
    ):
        ready = measured.hear(Ready)
        with plain.served(f"{ready.control}/v1/overview") as peer:
            _load(Page(), browser, ready, peer)  # the first page of a browser takes it longer
            for _ in range(rounds):
                _load(page, browser, ready, peer)
        for _ in range(rounds):
            for name, storm in storms.items():
                _storm(storm, name, measured, browser, ready)
    text = "\n".join(
        [
            _heading(rounds, browser_version(), began),
            f"## Targets\n\n{_judged(page, storms)}\n",
            f"## The fleet as a page\n\n{_page(page)}\n",
            f"## A storm of {EVENTS:,} commits in {SECONDS:g} s\n\n{_storms(storms)}\n",
            f"## In the wheel\n\n{_in_the_wheel():.0f} kB.\n",
        ]
    )
    sys.stdout.write(f"{text}\n")
    if keep:
        RESULTS.write_text(f"{text}\n{NOTES.read_text()}")


def _load(found: Page, browser: Browser, ready: Ready, peer: str) -> None:
    path, seen = PAGES["Fleet"]
    with opened(browser, f"{ready.control}/ui/{path}", seen) as page:
        found.drawn.append(page.drawn)
        page.page.wait_for_timeout(1_000)  # until nothing more is loaded
        found.moved.append(page.bytes / 1e3)
        found.requests.append(page.requests)
        found.longest.append(page.longest)
        found.heap.append(page.heap())
    with opened(browser, peer, "tr:last-child") as page:
        found.plain.append(page.drawn)


def _storm(found: Stormy, name: str, measured: Service, browser: Browser, ready: Ready) -> None:
    if name == NOBODY:
        with _guests(ready) as guests:
            found.rate.append(measured.ask(Storm(EVENTS, SECONDS), float))
            _note(found, guests)
    else:
        path, seen = PAGES[name]
        with opened(browser, f"{ready.control}/ui/{path}", seen) as page:
            assert page.drawn
            page.page.wait_for_timeout(1_000)
            moved, requests = page.bytes, page.requests
            page.page.evaluate("measured.longest = 0")
            tasks: list[float] = []
            with _guests(ready) as guests, browsing.traced(browser, page.page, tasks):
                storm = threading.Thread(
                    target=lambda: found.rate.append(measured.ask(Storm(EVENTS, SECONDS), float))
                )
                storm.start()
                heap = 0.0
                while storm.is_alive():
                    page.page.wait_for_timeout(LOOK * 1e3)
                    heap = max(heap, page.heap())
                storm.join()
                found.longest.append(page.longest)
                found.heap.append(heap)
                found.moved.append((page.bytes - moved) / 1e3)
                found.requests.append(page.requests - requests)
                _note(found, guests)
            found.busiest.append(max(tasks))
    measured.ask(Storm(0, 0), float)


@contextlib.contextmanager
def _guests(ready: Ready) -> Iterator[subprocess.Popen[str]]:
    """Guests that poll during a storm."""
    parts = urlsplit(ready.metadata)
    argv = ["bench.portal.guests", parts.hostname, parts.port, GUESTS, SECONDS]
    with tempfile.NamedTemporaryFile() as log:
        command = [sys.executable, "-m", *map(str, argv)]
        with processes.running(
            command, core=processes.LOAD_CORE, log=Path(log.name), pipes=True
        ) as process:
            yield process


def _note(found: Stormy, guests: subprocess.Popen[str]) -> None:
    waited = msgspec.json.decode(processes.pipe(guests.stdout).readline(), type=Waited)
    found.p50.append(waited.p50)
    found.p99.append(waited.p99)


def _in_the_wheel() -> float:
    """kB by which the portal makes the wheel larger."""
    packed = io.BytesIO()
    root = Path(str(files("forewarn.portal")))
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in root.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                wheel.write(path, path.relative_to(root.parents[3]))
    return len(packed.getvalue()) / 1e3


def _judged(page: Page, storms: dict[str, Stormy]) -> str:
    of_pages = [storms[name] for name in PAGES]
    busiest = max(max(storm.busiest) for storm in of_pages)
    heap = max(max(storm.heap) for storm in of_pages)
    rows = [
        (f"{what}, {unit}", f"at most {most:g}", f"{value:.0f}", "yes" if value <= most else "no")
        for what, unit, most, value in (
            ("the page of the fleet is drawn", "ms", DRAWN, _median(page.drawn)),
            ("all that moves for it", "kB", MOVED, max(page.moved)),
            ("longest task of a page in a storm", "ms of the processor", LONGEST, busiest),
            ("scripts' memory in a storm", "MB", HEAP, heap),
            ("the portal in the wheel", "kB", WHEEL, _in_the_wheel()),
        )
    ]
    return table(("target", "wanted", "measured", "met"), rows)


def _page(found: Page) -> str:
    ratios = [one / other for one, other in zip(found.drawn, found.plain, strict=True)]
    rows = [
        ("drawn, ms", *_median_and_range(found.drawn)),
        ("a plain table of the same rows, ms", *_median_and_range(found.plain)),
        ("× plain table", f"{_median(ratios):.2f}", f"{min(ratios):.2f}–{max(ratios):.2f}"),
        ("moved, kB", *_median_and_range(found.moved)),
        ("requests", *_median_and_range(found.requests)),
        ("longest task, ms", *_median_and_range(found.longest)),
        ("scripts' memory, MB", *_median_and_range(found.heap)),
    ]
    return table(("what", "median", "from–to"), rows)


def _storms(found: dict[str, Stormy]) -> str:
    before = found[NOBODY].p99
    rows = []
    for name, storm in found.items():
        ratios = [one / other for one, other in zip(storm.p99, before, strict=True)]
        of_page = [storm.longest, storm.busiest, storm.heap, storm.moved, storm.requests]
        rows.append(
            (
                *(name, f"{_median(storm.rate):.0f}"),
                *(f"{_median(values):,.0f}" if values else "" for values in of_page),
                *(f"{_median(storm.p50):.2f}", f"{_median(storm.p99):.1f}"),
                *(f"{_median(ratios):.2f}", f"{min(ratios):.2f}–{max(ratios):.2f}"),
            )
        )
    head = ("open", "commits/s", "longest task, ms", "its CPU, ms", "memory, MB", "moved, kB")
    tail = ("requests", "polls p50, ms", "p99, ms", f"p99 × {NOBODY}", "from–to")
    return table((*head, *tail), rows)


def _median_and_range(values: Sequence[float]) -> tuple[str, str]:
    return f"{_median(values):,.0f}", f"{min(values):,.0f}–{max(values):,.0f}"


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def browser_version() -> str:
    output = subprocess.run([browsing.CHROMIUM, "--version"], capture_output=True, text=True).stdout
    return " ".join(output.split()[:2])


def _heading(rounds: int, browser: str, began: tuple[float, float, float]) -> str:
    load = f"{began[0]:.1f} at the beginning, {os.getloadavg()[0]:.1f} at the end"
    python = "the distribution's" if sys.base_prefix == "/usr" else "not the distribution's"
    lines = [
        *("# What the portal costs", ""),
        f"Written by `make bench BENCH=portal` on {tools.date()}.",
        *("", f"- machine: {tools.machine()}"),
        f"- versions: forewarn {__version__}, Python {platform.python_version()} ({python}),"
        f" {browser}",
        f"- fleet: {MACHINES:,} machines on {HOSTS:,} hosts, in SQLite",
        f"- service on core {processes.SERVER_CORE}; browser and guests on core"
        f" {processes.LOAD_CORE}; niceness {os.nice(0)}; load average, ours included: {load}",
        f"- rounds: {rounds}, interleaved; medians, and how far they spread",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
