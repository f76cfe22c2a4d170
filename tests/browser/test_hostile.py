"""Whatever anybody can write somewhere is shown on the portal as what it is: text. It does not run,
leads nowhere else, and breaks no page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

import pytest
from playwright.sync_api import Browser, Page, expect

from forewarn.core import EventType
from forewarn.drivers.port import Unknown
from forewarn.drivers.simulated import SimulatedDriver
from forewarn.service.platform.platform import Outcome
from forewarn.testing import Service
from helpers.browser import go, portal, settled
from helpers.token_api import Api

# What a browser, a template or a terminal might take for something else than text.
MARKUP = (
    "<img src=x onerror=alert(1)>",
    "\"'><script>alert(2)</script>",
    "</script></textarea></title><svg/onload=alert(3)>",
    "javascript:alert(4)",
    "<iframe srcdoc='<script>alert(5)</script>'></iframe>",
    "${alert(6)}`{{constructor.constructor('alert(7)')()}}",
    "<a href=http://127.0.0.1:9/>here</a><style>*{display:none}</style>",
    "<!--",
    "&lt;b&gt;&#x3c;i&#x3e;",
)
UNSEEN = "evil\u202e\u2066txt.\u200b\u200f\ufeff\x1b[31m\x07"
SHOWN = r"evil\u202e\u2066txt.\u200b\u200f\ufeff\u001b[31m\u0007"
LONG = "W" * 200
HOSTILE = " ".join((*MARKUP, UNSEEN, LONG, "__proto__ ../../.. %2e%2e%2f %"))
TICKET = " ".join((*MARKUP[:3], UNSEEN))
ACTOR = MARKUP[0]
# Names are letters, digits, '.', '_' and '-': some of them still mean something to a script.
GROUP, SPECIAL, LONG_NAME = "constructor", ("toString", "valueOf"), "w" * 80
FLEET = {
    "location": MARKUP[0],
    "resource_group": MARKUP[1],
    "hosts": [{"name": "hasOwnProperty", "labels": {"constructor": "x@y"}}, LONG_NAME],
    "maintenance": [{"name": "toString", "windows": ["sun 22:00-04:00"], "select": "tier=sql"}],
    "groups": [
        {
            "name": GROUP,
            "kind": "availability-set",
            "labels": {"constructor": "", "tier": "sql"},
            "machines": [
                {
                    "name": SPECIAL[0],
                    "host": "hasOwnProperty",
                    "computer_name": MARKUP[2],
                    "update_domain": 1,
                },
                {
                    "name": SPECIAL[1],
                    "host": LONG_NAME,
                    "tags": {MARKUP[0]: MARKUP[1], "l": LONG},
                    "update_domain": 1,
                },
            ],
        },
        {
            "name": LONG_NAME,
            "kind": "standalone",
            "machines": [{"name": LONG_NAME, "host": LONG_NAME}],
        },
    ],
}
PAGES = (
    *("/", "/fleet", "/fleet?by=group", "/events?past=true", "/rollouts", "/history"),
    *("/hosts", "/groups", "/machines", "/maintenance"),
    *("/events/{held}", "/events/{waiting}", "/events/{over}", "/rollouts/{rollout}"),
    *(f"/groups/{GROUP}", f"/groups/{LONG_NAME}", f"/hosts/{LONG_NAME}", "/hosts/hasOwnProperty"),
    *(f"/machines/{name}" for name in (*SPECIAL, LONG_NAME)),
)
_TEXT = quote(HOSTILE, safe="")
_PATH = quote(HOSTILE.replace("//", "/"), safe="")  # the service refuses empty segments of a path
ADDRESSES = (
    *(f"/{kind}/{_PATH}" for kind in ("events", "groups", "hosts", "machines", "rollouts")),
    *("/__proto__", "/constructor", "/toString/x", "/events/__proto__", "/machines/constructor"),
    *("/%5c%5c127.0.0.1:9", "/javascript:alert(1)", "/machines/%E0%A4%A"),
    f"/fleet?by={_TEXT}&label={_TEXT}&state={_TEXT}",
    *("/fleet?state=constructor", "/rollouts?state=toString", "/events?status=__proto__"),
    f"/events?group={_TEXT}&machine={_TEXT}&host={_TEXT}&type={_TEXT}&rollout={_TEXT}",
    f"/history?what={_TEXT}&since={_TEXT}&before={_TEXT}",
    f"/rollouts?state={_TEXT}&after={_TEXT}",
    f"/#{MARKUP[0]}",
)
ELSEWHERE = "http://127.0.0.1:9/"  # where nobody listens


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(sockets=True) as service:
        yield service


@pytest.fixture(scope="module")
def names(service: Service) -> dict[str, str]:
    """Write something hostile into every field that there is, and return the ids of the results."""
    api, session = Api(service.control_url), service._session

    def call(method: str, path: str, body: object = None) -> Any:
        answer = api.call(method, path, body)
        assert answer.status in (200, 201), (path, answer.body)
        return answer.json()

    def schedule(*machines: str) -> str:
        platform = session.node.platform
        event = session.run(
            platform.schedule(
                type=EventType.REBOOT,
                machines=machines,
                by=ACTOR,
                description=HOSTILE,
                ticket=TICKET,
                ignore_windows=True,
            )
        )
        assert isinstance(event, Outcome), event
        return str(event.event.id)

    call("PUT", "/v1/fleet", FLEET)
    service.document(SPECIAL[0])
    over = schedule(LONG_NAME)
    call("POST", f"/v1/events/{over}/cancel", {"reason": HOSTILE})
    with pytest.MonkeyPatch.context() as patch:

        async def not_known(self: SimulatedDriver, task: object) -> Unknown:
            return Unknown(why=HOSTILE, output=HOSTILE)

        patch.setattr(SimulatedDriver, "perform", not_known)
        patch.setattr(SimulatedDriver, "observe", not_known)
        held = schedule(SPECIAL[0])
        session.run(session.node.platform.approve(held, by=ACTOR))
        service.clock.advance("1m")
    waiting = schedule(*SPECIAL)
    call("POST", f"/v1/events/{waiting}/ready", {"machine": SPECIAL[1], "note": HOSTILE})
    call("POST", "/v1/hosts/hasOwnProperty/cordon", {"note": HOSTILE})
    call("POST", f"/v1/hosts/{LONG_NAME}/degrade", {"note": HOSTILE})
    body = {"type": "Freeze", "groups": [LONG_NAME], "description": HOSTILE, "ticket": TICKET}
    rollout = call("POST", "/v1/rollouts", body)["id"]
    call("POST", f"/v1/rollouts/{rollout}/pause", {"reason": HOSTILE})
    call("POST", "/v1/halts", {"groups": [GROUP], "note": HOSTILE})
    return {"held": held, "waiting": waiting, "over": over, "rollout": rollout}


def check(page: Page, where: str) -> None:
    """Nothing of what was written has become a part of the page, and it has kept its width."""
    assert page.locator("img, iframe, style, script:not(head script)").count() == 0, where
    links = page.locator("a:not(.skip)")
    for address, text in links.evaluate_all("links => links.map(a => [a.href, a.textContent])"):
        assert re.match(r"http://127\.0\.0\.1:\d+/ui/", address), (where, address)
        kind, _, name = address.partition("/ui/")[2].partition("/")
        if kind in ("machines", "groups", "hosts") and name and "?" not in name:
            assert unquote(name) in text, where
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], where


@pytest.mark.parametrize("width", [1200, 375])
def test_hostile_values_are_shown_as_text_on_every_page(
    browser: Browser, service: Service, names: dict[str, str], width: int
) -> None:
    with portal(browser, service, width=width) as page:
        for path in PAGES:
            go(page, path.format(**names))
            check(page, path)
            text = page.locator("body").inner_text()
            assert "\u202e" not in text, path
            if "/events/" in path:
                assert SHOWN in text
                assert MARKUP[0] in text


def test_hostile_addresses_lead_to_no_other_site(
    browser: Browser, service: Service, names: dict[str, str]
) -> None:
    del names
    with portal(browser, service, refused=(400, 404)) as page:
        for path in ADDRESSES:
            go(page, path)
            check(page, path)
        for path in ("/machines/%E0%A4%A", f"/machines/{_PATH}?{_TEXT}#{_TEXT}"):
            page.goto(f"{service.control_url}/ui{path}")
            settled(page)
            check(page, path)
        go(page, f"/machines/{SPECIAL[0]}")
        expect(page.get_by_role("heading", name=f"Machine {SPECIAL[0]}")).to_be_visible()


def test_dialogs_and_the_search_show_hostile_values_as_text(
    browser: Browser, service: Service, names: dict[str, str]
) -> None:
    with portal(browser, service, f"/events/{names['waiting']}", refused=(400,)) as page:
        for verb, label in (("Cancel", "Reason"), ("Report ready", "Note")):
            page.get_by_role("button", name=f"{verb}…", exact=True).first.click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_label(label).fill(HOSTILE)
            check(page, verb)
            page.keyboard.press("Escape")
        page.get_by_role("button", name="Release…").click()
        expect(page.get_by_role("dialog")).to_contain_text(MARKUP[0])
        check(page, "Release")
        page.keyboard.press("Escape")
        page.get_by_role("combobox", name="Search").fill(MARKUP[0])
        expect(page.get_by_text("Nothing has such a name or id.")).to_be_visible()
        page.get_by_role("combobox", name="Search").fill(LONG_NAME[:20])
        expect(page.get_by_role("option").first).to_be_visible()
        check(page, "search")


MISDEEDS = (
    ("console", "console.error('mine')", "console: mine"),
    ("weberror", "setTimeout(() => { throw new Error('own') })", "error: own"),
    ("dialog", "setTimeout(() => alert('hello'))", "alert: hello"),
    ("console", f"fetch('{ELSEWHERE}').catch(() => 0)", "connect-src 'self'"),
    ("console", f"document.body.append(Object.assign(new Image(), {{src: '{ELSEWHERE}'}}))", "img"),
    ("console", "document.body.setAttribute('style', 'color: red')", "inline style"),
    ("console", "try { document.body.innerHTML = 'mine' } catch {}", "TrustedHTML"),
    ("request", f"setTimeout(() => location.assign('{ELSEWHERE}'))", f"a request to {ELSEWHERE}"),
)


def test_every_forbidden_action_of_a_page_is_noticed(browser: Browser, service: Service) -> None:
    def misbehave() -> None:
        with portal(browser, service, "/nowhere") as page:
            for event, script, _ in MISDEEDS:
                with page.context.expect_event(event):
                    page.evaluate(f"() => {{ {script} }}")

    with pytest.raises(AssertionError) as raised:
        misbehave()
    assert [found for *_, found in MISDEEDS if found not in str(raised.value)] == []
