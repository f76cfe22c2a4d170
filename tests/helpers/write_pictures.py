"""Writes docs/images/portal anew: pages of the portal in Chromium, for the documentation."""

from __future__ import annotations

import struct
import sys
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct
from playwright.sync_api import Browser, Page, StorageState, expect, sync_playwright

from helpers.browser import ARGUMENTS, CHROMIUM, settled
from helpers.paths import ROOT
from helpers.portal_scene import LargeScene, Scene, large_scene, portal_scene

PICTURES = ROOT / "docs" / "images" / "portal"
WIDE, NARROW = 1080, 375
# A frame, which tells a picture from the page around it.
FRAME = """html::after {
  content: ''; position: fixed; inset: 0; z-index: 9; border: 1px solid var(--line);
}"""
# Services in production have no such panel.
NO_CLOCK = ".clock { display: none }"
# The port of the endpoint is another one each time.
HIDE = """name => {
  const terms = [...document.querySelectorAll('dt')];
  for (const term of terms) term.parentElement.hidden = term.textContent === name;
}"""


class Picture(Struct, frozen=True):
    """A page, what is done on it first, and how much of it is shown."""

    name: str
    path: str
    height: int = 760  # at most
    width: int = WIDE
    scheme: Literal["light", "dark"] = "light"
    prepare: Callable[[Page], object] = bool  # nothing
    whole: bool = True  # or what is in the window
    clock: bool = False
    logged_in: bool = True


def _ask(verb: str, within: str = "main") -> Callable[[Page], None]:
    def prepare(page: Page) -> None:
        page.locator(within).get_by_role("button", name=f"{verb}…").first.click()
        expect(page.get_by_role("dialog").locator("[aria-busy=true]")).to_have_count(0)

    return prepare


def _plan(page: Page) -> None:
    _ask("Start a rollout")(page)
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type").select_option("Reboot")
    dialog.get_by_label("Groups", exact=True).fill("search, render")
    dialog.get_by_role("button", name="Show the plan").click()
    expect(dialog.get_by_role("table")).to_be_visible()


def _search(page: Page) -> None:
    page.keyboard.press("/")
    page.get_by_role("combobox", name="Search").press_sequentially("orders")
    expect(page.get_by_role("option").first).to_be_visible()


def pictures(scene: Scene) -> list[Picture]:
    """Return what to take, in the order of the documentation."""

    def stopped(page: Page) -> None:
        scene.stop()
        expect(page.locator(".halt")).to_be_visible()

    held, rollout = f"/events/{scene.held}", f"/rollouts/{scene.rollout}"
    return [
        Picture("login", "/", 420, 620, logged_in=False),
        Picture("status", "/"),
        Picture("status-dark", "/", scheme="dark"),
        Picture("status-narrow", "/", 640, NARROW),
        Picture("search", "/", 300, prepare=_search),
        Picture("tonight", "/tonight", 860),
        Picture("fleet-hosts", "/fleet"),
        Picture("fleet-racks", "/fleet?sums=rack"),
        Picture("hosts", "/hosts"),
        Picture("groups", "/groups"),
        Picture("machines", "/machines?group=web"),
        Picture("maintenance", "/maintenance"),
        Picture("host", f"/hosts/{scene.joint_host}"),
        Picture("group", "/groups/web"),
        Picture("machine", "/machines/web_7"),
        Picture("events", "/events"),
        Picture("event", held, 860),
        Picture("event-narrow", held, 640, NARROW),
        Picture("rollouts", "/rollouts"),
        Picture("rollout", rollout, 860),
        Picture("rollout-plan", "/rollouts", 700, prepare=_plan, whole=False),
        Picture("history", "/history", 700),
        Picture("confirmation", held, 560, prepare=_ask("Cancel"), whole=False),
        Picture("halt", "/", 560, prepare=_ask("Halt all", "nav"), whole=False),
        Picture("clock", "/", 330, clock=True),
        Picture("halted", "/", 330, prepare=stopped),  # the last one: everything is stopped
    ]


def large_pictures() -> list[Picture]:
    """Return those of a large fleet."""
    return [
        Picture("large-status", "/"),
        Picture("large-status-narrow", "/", 640, NARROW),
        Picture("large-tonight", "/tonight?sums=row"),
        Picture("large-fleet", "/fleet?sums=row"),
    ]


def take(
    browser: Browser, scene: Scene | LargeScene, picture: Picture, session: StorageState
) -> bytes:
    """Return a picture as a PNG."""
    context = browser.new_context(
        base_url=scene.service.control_url,
        bypass_csp=True,  # which would not let a style in
        color_scheme=picture.scheme,
        reduced_motion="reduce",
        storage_state=session if picture.logged_in else None,
        viewport={"width": picture.width, "height": 300 if picture.whole else picture.height},
    )
    context.set_default_timeout(15_000)
    page = context.new_page()
    page.goto(f"/ui{picture.path}")
    if picture.logged_in:
        expect(page.locator(".connection")).to_have_text("live")
    _still(page)
    picture.prepare(page)
    _still(page)
    page.evaluate(HIDE, "Metadata endpoint")
    page.add_style_tag(content=FRAME if picture.clock else FRAME + NO_CLOCK)
    content = page.evaluate("document.documentElement.scrollHeight")
    height = min(content, picture.height) if picture.whole else picture.height
    page.set_viewport_size({"width": picture.width, "height": height})
    taken = page.screenshot(animations="disabled", caret="hide")
    context.close()
    return taken


def _still(page: Page) -> None:
    """Wait until everything is shown that the page has asked for."""
    settled(page)
    page.wait_for_load_state("networkidle")


# The pixels of a PNG, of which the browser gets the bytes in Base64.
DECODED = """() => {
  globalThis.decoded = async png => {
    const bytes = Uint8Array.from(atob(png), character => character.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes]));
    const context = new OffscreenCanvas(image.width, image.height).getContext('2d');
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
}"""

# Whether nobody can tell two pictures from each other: edges of lines are not drawn exactly alike
# each time.
ALIKE = """async ([one, other]) => {
  const [a, b] = [await decoded(one), await decoded(other)];
  if (a.width !== b.width || a.height !== b.height) return false;
  return a.data.every((part, n) => Math.abs(part - b.data[n]) < 24);
}"""

# The pixels of a PNG as indices of a palette, which has the most frequent colours, but none that
# hardly differs from a more frequent one. Every other colour becomes the most similar of these.
INDEXED = """async png => {
  const image = await decoded(png);
  const pixels = new Uint32Array(image.data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const colours = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || a - b);
  const parts = colour => [colour & 255, colour >> 8 & 255, colour >> 16 & 255];
  const distance = (a, b) => a.reduce((sum, part, n) => sum + (part - b[n]) ** 2, 0);
  let palette = colours.map(parts);
  for (let least = 1; palette.length > 256; least *= 2) {
    const chosen = [];
    for (const colour of palette) {
      if (chosen.every(other => distance(colour, other) > least)) chosen.push(colour);
    }
    palette = chosen;
  }
  const places = new Map(colours.map(colour => {
    const distances = palette.map(other => distance(parts(colour), other));
    return [colour, distances.indexOf(Math.min(...distances))];
  }));
  const indices = Array.from(pixels, pixel => String.fromCharCode(places.get(pixel)));
  return { width: image.width, height: image.height, palette, indices: btoa(indices.join('')) };
}"""


def smaller(png: bytes, page: Page) -> bytes:
    """Return a PNG with a palette of 256 colours, which is a third as large."""
    found = page.evaluate(INDEXED, b64encode(png).decode())
    indices, width = b64decode(found["indices"]), found["width"]
    rows = (b"\0" + indices[start : start + width] for start in range(0, len(indices), width))
    header = struct.pack(">IIBBBBB", width, found["height"], 8, 3, 0, 0, 0)
    palette = bytes(part for colour in found["palette"] for part in colour)
    data = zlib.compress(b"".join(rows), 9)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", data), (b"IEND", b""))
    return png[:8] + b"".join(_chunk(kind, content) for kind, content in chunks)


def alike(one: bytes, other: bytes, page: Page) -> bool:
    return bool(page.evaluate(ALIKE, [b64encode(png).decode() for png in (one, other)]))


def _chunk(kind: bytes, content: bytes) -> bytes:
    size, check = (struct.pack(">I", n) for n in (len(content), zlib.crc32(kind + content)))
    return size + kind + content + check


def log_in(browser: Browser, scene: Scene | LargeScene) -> StorageState:
    with browser.new_context(base_url=scene.service.control_url) as context:
        page = context.new_page()
        page.goto("/ui/")
        page.get_by_label("Token").fill(scene.maria.token)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Status")).to_be_visible()
        return context.storage_state()


def write(target: str = "", *names: str) -> None:
    """Write all pictures, or those with these names."""
    if not CHROMIUM.exists():
        sys.exit(f"{CHROMIUM} is missing: apt-get install {CHROMIUM.name}")
    directory = Path(target) if target else PICTURES
    directory.mkdir(parents=True, exist_ok=True)
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS)) as browser,
    ):
        blank = browser.new_page()
        blank.evaluate(DECODED)
        with portal_scene() as scene:
            _write(browser, scene, pictures(scene), blank, directory, names)
        with large_scene() as large:
            _write(browser, large, large_pictures(), blank, directory, names)


def _write(
    browser: Browser,
    scene: Scene | LargeScene,
    wanted: list[Picture],
    blank: Page,
    directory: Path,
    names: tuple[str, ...],
) -> None:
    session = log_in(browser, scene)
    for picture in wanted:
        if not names or picture.name in names:
            file = directory / f"{picture.name}.png"
            taken = smaller(take(browser, scene, picture, session), blank)
            if not file.exists() or not alike(file.read_bytes(), taken, blank):
                file.write_bytes(taken)


if __name__ == "__main__":
    write(*sys.argv[1:])
