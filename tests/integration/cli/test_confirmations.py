"""Commands that destroy something or shorten a promise: whom they name, and when they ask."""

from __future__ import annotations

import re
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

# What each names before it is confirmed, as a pattern.
VERBS = {
    ("machine", "delete", "web_0"): "web_0 of group web on host h1 .* deleted, .* 5 min",
    ("machine", "delete", "web_1"): "web_1 of group web .* deleted, .* without notice",
    ("machine", "evict", "web_1"): "web_1 of group web .* evicted",
    (
        "machine",
        "fail",
        "web_0",
    ): "web_0 of group web on host h1 .* failed: a Redeploy .* without notice",
    ("group", "evict", "web"): "2 spot machines of web .* evicted: web_1, web_2",
    ("group", "scale-in", "web", "--to", "1"): "3 of the 4 .* deleted: web_10, web_2, web_1",
    ("event", "schedule", "Reboot", "web_0", "--ignore-windows"): "Reboot of web_0 .* ignore",
    (
        "host",
        "maintain",
        "h1",
        "--ignore-windows",
    ): r"maintenance of host h1 \(machines web_0\) .* ignore",
    (
        "host",
        "degrade",
        "h1",
        "--ignore-windows",
    ): r"emptying of host h1 \(machines web_0\) .* ignore",
    (
        "rollout",
        "start",
        "--type",
        "Reboot",
        "--group",
        "web",
        "--ignore-windows",
    ): "the rollout .* ignore",
    ("host", "fail", "h1"): "host h1 .* failed: a Redeploy of 1 machine .* without notice: web_0",
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as made:
        made.document("web_0")
        yield made


def run(service: Service, *words: str, answer: str = "") -> Result:
    return CliRunner().invoke(app, [*words, "--url", service.control_url], input=answer)


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_the_affected_machines_are_named_and_nothing_is_changed_unless_it_is_confirmed(
    service: Service, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = service._session.node.store.seq
    result = run(service, *words)
    assert result.exit_code == 2
    assert re.match(f"forewarn: .*{VERBS[words]}.*; .*--yes", result.stderr), result.stderr
    monkeypatch.setattr(confirm, "_on_terminal", lambda: True)
    result = run(service, *words, answer="n\n")
    assert result.exit_code == 1
    assert re.search(rf"{VERBS[words]}.*\n.* \[y/N\]", result.stderr), result.stderr
    assert "nothing was changed" in result.stderr
    assert service._session.node.store.seq == before


def test_an_approval_is_asked_about_while_there_is_notice_left(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = service.schedule("Reboot", "web_0", notice="20m")
    service.clock.advance("5m")
    refused = run(service, "event", "approve", event.id)
    assert refused.exit_code == 2
    assert re.search("Reboot of web_0 in group web .* notice of 15 min", refused.stderr)
    assert event.status == "Scheduled"
    monkeypatch.setattr(confirm, "_on_terminal", lambda: True)
    assert run(service, "event", "approve", event.id, answer="y\n").exit_code == 0
    service._session.settle()
    assert event.status == "Started"
    monkeypatch.undo()
    assert run(service, "event", "approve", event.id).exit_code == 0  # nothing is taken away
    service.clock.advance("1h")


def test_an_approval_that_ignores_windows_is_asked_about_even_if_the_notice_has_passed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    blackout = ("group", "policy", "web", "--blackout", "2027-01-01 to 2027-02-01")
    event = service.schedule("Reboot", "web_0", notice="20m")
    assert run(service, *blackout).exit_code == 0
    service.clock.advance("1h")
    approval = "event", "approve", event.id, "--ignore-windows"
    refused = run(service, *approval)
    assert refused.exit_code == 2
    assert re.match("forewarn: Reboot of web_0 in group web .* ignore", refused.stderr)
    assert event.status == "Scheduled"
    monkeypatch.setattr(confirm, "_on_terminal", lambda: True)
    assert run(service, *approval, answer="y\n").exit_code == 0
    service._session.settle()
    assert event.status == "Started"
    history = run(service, "history", "--event", event.id).stdout
    assert "ignores windows" in history
    monkeypatch.undo()
    assert run(service, "group", "policy", "web", "--blackout", "none").exit_code == 0
    service.clock.advance("1h")


def test_a_scale_in_does_not_count_machines_that_are_being_deleted(service: Service) -> None:
    assert run(service, "machine", "delete", "web_10", "--yes").exit_code == 0
    refused = run(service, "group", "scale-in", "web", "--count", "1")
    assert re.search("1 of the 3 .*: web_2;", refused.stderr)


def test_an_unknown_machine_is_refused_without_a_question(service: Service) -> None:
    result = run(service, "machine", "evict", "web_9")
    assert result.exit_code == 1
    assert "no machine 'web_9'" in result.stderr
