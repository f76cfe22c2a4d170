"""Commands that destroy something or shorten a promise: whom they name, and when they ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli import confirm
from forewarn.cli.app import app
from forewarn.testing import Service

FLEET = """
hosts: [h1]
groups:
  - name: web
    kind: scale-set
    policy: {terminate_notice: 5m}
    machines:
      - {name: web_0, host: h1}
      - {name: web_1, spot: true}
      - {name: web_2, spot: true}
  - name: web-b
    kind: scale-set
    scale_set: web
    machines: [{name: web_10}]
"""

WINDOWS = (
    "maintenance windows and blackouts that were set for its machines, and could start outside of"
    " them"
)
VERBS = {
    ("machine", "delete", "web_0"): "machine web_0 of group web on host h1 would be deleted, with"
    " 5 min of notice",
    ("machine", "delete", "web_1"): "machine web_1 of group web would be deleted, at once, without"
    " notice",
    ("machine", "evict", "web_1"): "machine web_1 of group web would be evicted",
    ("machine", "fail", "web_0"): "machine web_0 of group web on host h1 would be reported as"
    " failed: a Redeploy starts at once, without notice",
    ("group", "evict", "web"): "2 spot machines of web would be evicted: web_1, web_2",
    ("group", "scale-in", "web", "--to", "1"): "3 of the 4 machines of web would be deleted:"
    " web_10, web_2, web_1",
    ("event", "schedule", "Reboot", "web_0", "--ignore-windows"): "Reboot of web_0 would ignore the"
    f" {WINDOWS}",
    ("host", "maintain", "h1", "--ignore-windows"): "maintenance of host h1 (machines web_0) would"
    f" ignore the {WINDOWS}",
    ("host", "degrade", "h1", "--ignore-windows"): "emptying of host h1 (machines web_0) would"
    f" ignore the {WINDOWS}",
    ("rollout", "start", "--type", "Reboot", "--group", "web", "--ignore-windows"): "the rollout"
    f" would ignore the {WINDOWS}",
    ("host", "fail", "h1"): "host h1 would be reported as failed, and 1 machine redeployed at once,"
    " without notice: web_0",
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as made:
        made.document("web_0")
        yield made


def typed(service: Service, *words: str, answer: str = "") -> Result:
    return CliRunner().invoke(app, [*words, "--url", service.control_url], input=answer)


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_whom_it_concerns_is_said_and_nothing_is_done_unless_it_is_confirmed(
    service: Service, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = service._session.node.store.seq
    result = typed(service, *words)
    assert result.exit_code == 2
    assert result.stderr == f"forewarn: {VERBS[words]}; pass --yes to confirm\n"
    monkeypatch.setattr(confirm, "_on_terminal", lambda: True)
    result = typed(service, *words, answer="n\n")
    assert result.exit_code == 1
    assert f"{VERBS[words]}\nContinue? [y/N]" in result.stderr
    assert result.stderr.endswith("forewarn: nothing was changed\n")
    assert service._session.node.store.seq == before


def test_an_approval_is_asked_about_while_there_is_notice_left(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = service.schedule("Reboot", "web_0", notice="20m")
    service.clock.advance("5m")
    refused = typed(service, "event", "approve", event.id)
    assert refused.exit_code == 2
    assert "Reboot of web_0 in group web could start at once" in refused.stderr
    assert "their remaining notice of 15 min" in refused.stderr
    assert event.status == "Scheduled"
    monkeypatch.setattr(confirm, "_on_terminal", lambda: True)
    assert typed(service, "event", "approve", event.id, answer="y\n").exit_code == 0
    service._session.settle()
    assert event.status == "Started"
    monkeypatch.undo()
    assert typed(service, "event", "approve", event.id).exit_code == 0  # nothing is taken away
    service.clock.advance("1h")


def test_an_approval_that_ignores_windows_is_asked_about_even_if_the_notice_has_passed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    blackout = ("group", "policy", "web", "--blackout", "2027-01-01 to 2027-02-01")
    event = service.schedule("Reboot", "web_0", notice="20m")
    assert typed(service, *blackout).exit_code == 0
    service.clock.advance("1h")
    approval = "event", "approve", event.id, "--ignore-windows"
    refused = typed(service, *approval)
    assert refused.exit_code == 2
    assert refused.stderr.startswith(
        f"forewarn: Reboot of web_0 in group web would ignore the {WINDOWS}"
    )
    assert event.status == "Scheduled"
    monkeypatch.setattr(confirm, "_on_terminal", lambda: True)
    assert typed(service, *approval, answer="y\n").exit_code == 0
    service._session.settle()
    assert event.status == "Started"
    history = typed(service, "history", "--event", event.id).stdout
    assert "it ignores windows and blackouts" in history
    monkeypatch.undo()
    assert typed(service, "group", "policy", "web", "--blackout", "none").exit_code == 0
    service.clock.advance("1h")


def test_a_scale_in_does_not_count_machines_that_are_being_deleted(service: Service) -> None:
    assert typed(service, "machine", "delete", "web_10", "--yes").exit_code == 0
    refused = typed(service, "group", "scale-in", "web", "--count", "1")
    assert "1 of the 3 machines of web would be deleted: web_2;" in refused.stderr


def test_what_does_not_exist_is_refused_as_ever(service: Service) -> None:
    result = typed(service, "machine", "evict", "web_9")
    assert result.exit_code == 1
    assert "no machine 'web_9'" in result.stderr
