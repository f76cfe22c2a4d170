"""`make bench BENCH=portal`: measures, prints, and after a full run writes RESULTS.md."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import platform
import signal
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
NICE = -19
SIZES = ((40_000, 2_000), (200_000, 10_000))  # machines and hosts
ROUNDS, QUICK_ROUNDS = 2, 1
EVENTS, SECONDS = 1_000, 10.0  # of a storm
GUESTS = 50
LONGEST_RUN = 40 * 60  # seconds, after which it ends in any case
LOOK = 0.5  # seconds between two looks at the heap
NOBODY = "no page"
# Where a page is, and what is there once it shows what one has come for.
PAGES = {
    "Status": ("", "tbody .badge"),
    "Tonight": ("tonight", ".long tbody rect"),
    "Fleet": ("fleet", ".fleet-map path"),
    "Events": ("events", "tbody .badge"),
}
LIST = {"Machines, by their last poll": ("machines?order=last_poll", "tbody td")}
DRAWN, MOVED, LONGEST, HEAP, WHEEL = 2_000.0, 300.0, 200.0, 150.0, 200.0  # ms, kB, ms, MB, kB


@dataclass
class Page:
    """Of each load of a page, with as many events announced as a storm has."""

    drawn: list[float] = field(default_factory=list)  # milliseconds
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
    parser.add_argument("--only", type=int, default=0, help="one size: so many machines")
    parser.add_argument("--within", type=Path, default=Path("/var/tmp"), help="on a real disk")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST_RUN)
    try:
        sizes = [size for size in SIZES if options.only in (0, size[0])]
        if options.quick:
            _measure(sizes[:1], QUICK_ROUNDS, options.within, keep=False)
        else:
            _measure(sizes, options.rounds, options.within, keep=sizes == list(SIZES))
    except Failed as failure:
        sys.exit(f"bench: {failure}")
    except KeyboardInterrupt:
        sys.exit("bench: stopped")


def _too_long(*_: object) -> None:
    raise Failed(f"stopped after {LONGEST_RUN // 60} minutes")


@dataclass
class Measured:
    """Of one size."""

    machines: int
    hosts: int
    pages: dict[str, Page] = field(default_factory=lambda: {n: Page() for n in (*PAGES, *LIST)})
    plain: list[float] = field(default_factory=list)  # of the peer of Fleet, milliseconds
    storms: dict[str, Stormy] = field(
        default_factory=lambda: {n: Stormy() for n in (NOBODY, *PAGES)}
    )


def _measure(sizes: Sequence[tuple[int, int]], rounds: int, within: Path, *, keep: bool) -> None:
    processes.prepare()
    with contextlib.suppress(PermissionError):
        os.nice(NICE)  # others may be at work here; what we start inherits it
    began = os.getloadavg()
    all_sizes = [Measured(*size) for size in sizes]
    with browsing.browser() as browser:
        for size in all_sizes:
            _measure_one(size, browser, rounds, within)
    text = "\n".join(
        [
            _heading(rounds, browser_version(), began),
            f"## Targets\n\n{_judged(all_sizes)}\n",
            f"## First sight, with {EVENTS:,} events announced\n\n{_pages(all_sizes)}\n",
            f"## A storm of {EVENTS:,} commits in {SECONDS:g} s\n\n{_storms(all_sizes)}\n",
            f"## In the wheel\n\n{_in_the_wheel():.0f} kB.\n",
        ]
    )
    sys.stdout.write(f"{text}\n")
    if keep:
        RESULTS.write_text(f"{text}\n{NOTES.read_text()}")


def _measure_one(size: Measured, browser: Browser, rounds: int, within: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="bench-portal-", dir=within) as scratch,
        service(
            "bench.portal.serving", size.machines, size.hosts, scratch, log=Path(scratch, "log")
        ) as measured,
    ):
        ready = measured.hear(Ready)
        measured.ask(Storm(EVENTS, 0), float)
        with plain.served(f"{ready.control}/v1/overview") as peer:
            _load(Measured(0, 0), browser, ready, peer)  # the first page of a browser takes longer
            for _ in range(rounds):
                _load(size, browser, ready, peer)
        measured.ask(Storm(0, 0), float)
        for _ in range(rounds):
            for name, storm in size.storms.items():
                _progress(f"{size.machines:,} machines: a storm with {name}")
                _storm(storm, name, measured, browser, ready)


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _load(size: Measured, browser: Browser, ready: Ready, peer: str) -> None:
    for name, (path, seen) in (PAGES | LIST).items():
        found = size.pages[name]
        _progress(f"{size.machines:,} machines: {name}")
        with opened(browser, f"{ready.control}/ui/{path}", seen) as page:
            found.drawn.append(page.drawn)
            page.page.wait_for_timeout(1_000)  # until nothing more is loaded
            found.moved.append(page.bytes / 1e3)
            found.requests.append(page.requests)
            found.longest.append(page.longest)
            found.heap.append(page.heap())
    with opened(browser, peer, "tr:last-child") as page:
        size.plain.append(page.drawn)


def _storm(found: Stormy, name: str, measured: Service, browser: Browser, ready: Ready) -> None:
    if name == NOBODY:
        with _guests(ready) as guests:
            found.rate.append(measured.ask(Storm(EVENTS, SECONDS), float))
            _note(found, guests)
    else:
        path, _ = PAGES[name]
        with opened(browser, f"{ready.control}/ui/{path}", "h1") as page:  # no event is announced
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


def _judged(sizes: Sequence[Measured]) -> str:
    pages = [page for size in sizes for page in size.pages.values()]
    storms = [size.storms[name] for size in sizes for name in PAGES]
    rows = [
        (f"{what}, {unit}", f"at most {most:g}", f"{value:.0f}", "yes" if value <= most else "no")
        for what, unit, most, value in (
            ("first sight of any page", "ms", DRAWN, max(_median(page.drawn) for page in pages)),
            ("all that moves for it", "kB", MOVED, max(max(page.moved) for page in pages)),
            (
                *("longest task of a page in a storm", "ms", LONGEST),
                max(_median(storm.longest) for storm in storms),
            ),
            (
                *("scripts' memory in a storm", "MB", HEAP),
                max(max(storm.heap) for storm in storms),
            ),
            ("the portal in the wheel", "kB", WHEEL, _in_the_wheel()),
        )
    ]
    return table(("target", "wanted", "measured", "met"), rows)


def _pages(sizes: Sequence[Measured]) -> str:
    rows = []
    for size in sizes:
        for name, page in size.pages.items():
            of_page = (page.moved, page.requests, page.longest, page.heap)
            rows.append(
                (
                    *(f"{size.machines:,}", name, *_median_and_range(page.drawn)),
                    *(f"{_median(values):,.0f}" for values in of_page),
                )
            )
        rows.append(
            (
                f"{size.machines:,}",
                "a plain table of Fleet",
                *_median_and_range(size.plain),
                *[""] * 4,
            )
        )
    head = ("machines", "page", "drawn, ms", "from–to", "moved, kB", "requests")
    return table((*head, "longest task, ms", "memory, MB"), rows)


def _storms(sizes: Sequence[Measured]) -> str:
    rows = []
    for size in sizes:
        before = size.storms[NOBODY].p99
        for name, storm in size.storms.items():
            ratios = [one / other for one, other in zip(storm.p99, before, strict=True)]
            of_page = [storm.longest, storm.busiest, storm.heap, storm.moved, storm.requests]
            rows.append(
                (
                    *(f"{size.machines:,}", name, f"{_median(storm.rate):.0f}"),
                    *(f"{_median(values):,.0f}" if values else "" for values in of_page),
                    *(f"{_median(storm.p50):.2f}", f"{_median(storm.p99):.1f}"),
                    *(f"{_median(ratios):.2f}", f"{min(ratios):.2f}–{max(ratios):.2f}"),
                )
            )
    head = ("machines", "open", "commits/s", "longest task, ms", "its CPU, ms", "memory, MB")
    tail = ("moved, kB", "requests", "polls p50, ms", "p99, ms", f"p99 × {NOBODY}", "from–to")
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
        "- fleets: "
        + ", ".join(f"{machines:,} machines on {hosts:,} hosts" for machines, hosts in SIZES)
        + "; in SQLite",
        f"- service on core {processes.SERVER_CORE}; browser and guests on core"
        f" {processes.LOAD_CORE}; niceness {os.nice(0)}; load average, ours included: {load}",
        f"- rounds: {rounds}, interleaved; medians, and how far they spread",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
