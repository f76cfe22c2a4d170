"""Whoever may not do something is not offered it, and at a control node that follows nobody is
offered anything but the way to the one that decides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from forewarn.core.access import Role
from forewarn.node import Node
from forewarn.service.access.tokens import CreatedToken
from forewarn.testing import Service
from helpers.browser import go, portal
from helpers.control_nodes import ControlNodes, ask, new_state
from helpers.token_api import Api, token
from helpers.waiting import until

FLEET = """
hosts: [host-a, host-b]
groups:
  - name: web
    kind: scale-set
    policy: {may_postpone: 2h}
    machines:
      - {name: web_0, host: host-a, update_domain: 0, spot: true}
      - {name: web_1, host: host-b, update_domain: 1}
"""
ALL = ("Approve", "Postpone", "Report ready", "Cancel")
OF_GROUP = ("Start a rollout", "Change the policy", "Announce an event", "Cancel all events")


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


def offered(page: Page, *verbs: str) -> None:
    expect(page.locator(".facts, .empty").first).to_be_visible()
    expect(page.locator("main .verbs button")).to_have_text([f"{verb}…" for verb in verbs])


def test_each_role_is_offered_only_what_it_may_do(browser: Browser, service: Service) -> None:
    service.document("web_0")
    events = {
        "platform": service.schedule("Reboot", "web_0").id,
        "user": service.restart("web_1").id,
    }
    token(service, "alice", Role.ADMIN)
    cases: tuple[tuple[CreatedToken, dict[str, tuple[str, ...]]], ...] = (
        (token(service, "bob", Role.VIEWER), {}),
        (
            token(service, "dora", Role.TENANT, groups=("web",)),
            {
                f"/events/{events['platform']}": ("Approve", "Postpone", "Report ready"),
                f"/events/{events['user']}": ("Approve", "Report ready", "Cancel"),
                "/machines/web_0": ("Restart", "Redeploy"),
                "/groups/web": ("Cancel all events",),
            },
        ),
        (
            token(service, "carol", Role.OPERATOR, groups=("web",)),
            {
                f"/events/{events['platform']}": ("Approve", "Postpone", "Report ready"),
                f"/events/{events['user']}": ("Approve", "Report ready", "Cancel"),
                "/machines/web_0": ("Restart", "Redeploy", "Announce an event", "Delete"),
                "/groups/web": (*OF_GROUP[1:], "Scale in", "Disable"),
            },
        ),
        (
            token(service, "erin", Role.OPERATOR),
            {
                f"/events/{events['platform']}": ALL,
                f"/events/{events['user']}": ("Approve", "Report ready", "Cancel"),
                "/groups/web": (*OF_GROUP, "Scale in", "Evict spot machines", "Halt", "Disable"),
                "/rollouts": ("Start a rollout",),
            },
        ),
    )
    for created, pages in cases:
        with portal(browser, service, "/hosts", refused=(403,)) as page:
            page.get_by_label("Token").fill(created.secret.text)
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("heading", name="Hosts")).to_be_visible()
            halt = page.get_by_role("button", name="Halt all…")
            expect(halt).to_have_count(1 if created.token.name == "erin" else 0)
            for path in pages or ("/machines/web_0", f"/events/{events['user']}", "/groups/web"):
                go(page, path)
                offered(page, *pages.get(path, ()))
            if created.token.name == "carol":
                go(page, "/groups/web")
                page.get_by_role("button", name="Change the policy…").click()
                dialog = page.get_by_role("dialog")
                expect(dialog.get_by_label("User events at a time")).to_be_visible()
                expect(dialog.get_by_label("Windows")).to_have_count(0)


def test_a_change_of_the_policy_changes_what_is_offered(browser: Browser, service: Service) -> None:
    event = service.schedule("Reboot", "web_0")
    api = Api(service.control_url)
    with portal(browser, service, f"/events/{event.id}") as page:
        offered(page, "Approve", "Postpone", "Cancel")
        answer = api.call("PATCH", "/v1/groups/web/policy", {"may_postpone": None})
        assert answer.status == 200
        offered(page, "Approve", "Cancel")


@pytest.fixture
def control_nodes() -> Iterator[tuple[Node, Node]]:
    """One that decides, and one that follows."""
    with ControlNodes(new_state()) as nodes:
        leader = nodes.start_leader("c1")
        yield leader, nodes.start_follower("c2")


def test_a_following_control_node_links_to_the_leader(
    browser: Browser, control_nodes: tuple[Node, Node]
) -> None:
    deciding, follower = control_nodes
    leader = ask(follower.control_url, "GET", "/v1/session").json()["leader"]
    with portal(browser, follower, "/machines?group=web") as page:
        expect(page.get_by_text("Control node c1 decides.")).to_be_visible()
        link = page.get_by_role("link", name="This page on the control node that decides")
        expect(link).to_have_attribute("href", f"{leader['address']}/ui/machines?group=web")
        page.get_by_role("row").nth(1).get_by_role("link").first.click()
        offered(page)
        expect(page.get_by_role("button", name="Halt all…")).to_have_count(0)
    admin = {"name": "alice", "role": "admin"}
    secret = ask(deciding.control_url, "POST", "/v1/tokens", admin).json()["token"]
    until(lambda: follower.store.seq == deciding.store.seq)
    with portal(browser, follower, "/groups", refused=(503,)) as page:
        expect(page.get_by_text("This control node follows another one.")).to_be_visible()
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("control node 'c1'")
        link = page.get_by_role("link", name="This page on the control node that decides")
        expect(link).to_have_attribute("href", f"{leader['address']}/ui/groups")
