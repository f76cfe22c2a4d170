"""Which changes a table selects, and the words in which they are told."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forewarn.control.schema.core import Event
from forewarn.control.schema.feed import FeedChange, FeedCommit
from forewarn.core import Group, Machine
from forewarn.core.fleet import Host
from forewarn.core.rollouts.model import BY_ITSELF
from forewarn.notify import notification as n
from forewarn.notify import text
from forewarn.notify.follower import _pause_after
from forewarn.notify.kinds import DEFAULT_KINDS, KINDS
from forewarn.notify.targets.port import DeliveryFailed
from helpers.notifying_service import table

AT = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # clocks in Berlin are set back half an hour later
GROUPS = {
    "web": Group(name="web", labels={"owner": "w"}, machines=(Machine(name="web-0"),)),
    "db": Group(
        name="db", machines=(Machine(name="db-0", labels={"owner": "d"}), Machine(name="db-1"))
    ),
}
HOSTS = {"h1": Host(name="h1", labels={"owner": "o"})}


def event(group: str, *machines: str, **fields: Any) -> Event:
    values: dict[str, Any] = {
        "id": f"E-{group}",
        "group": group,
        "type": "Reboot",
        "status": "Scheduled",
        "source": "Platform",
        "machines": list(machines),
        "update_domain": 0,
        "not_before": AT + timedelta(minutes=15),
        "description": "",
        "duration": -1,
        "raised_at": AT,
        "raised_by": "ann",
        "listed": True,
    }
    return Event(**values | fields)


def commit(*changes: FeedChange, events: tuple[Event, ...] = ()) -> FeedCommit:
    return FeedCommit(seq=7, at=AT, changes=list(changes), events=list(events))


def raised(*events: Event) -> FeedCommit:
    changes = [
        FeedChange(what="raised", by="ann", group=e.group, event=e.id, machines=e.machines)
        for e in events
    ]
    return commit(*changes, events=events)


BOTH = raised(event("web", "web-0"), event("db", "db-0", "db-1"))
FAILED = commit(FeedChange(what="host-failed", host="h1", note="power"))
PAUSED = commit(FeedChange(what="rollout-paused", cause="R1", type="Reboot", by=BY_ITSELF))


@pytest.mark.parametrize(
    ("fields", "of", "groups"),
    [
        ({}, BOTH, ["web", "db"]),
        ({"groups": ["db"]}, BOTH, ["db"]),
        ({"owner": "w"}, BOTH, ["web"]),
        ({"owner": "d"}, BOTH, ["db"]),  # one of its machines is enough
        ({"label": "owner!=d"}, BOTH, ["web", "db"]),
        ({"owner": "x"}, BOTH, []),
        ({"severity": "warning"}, BOTH, []),
        ({"kinds": ["started"]}, BOTH, []),
        ({"severity": "error"}, FAILED, [""]),
        ({"owner": "o"}, FAILED, [""]),
        ({"owner": "w"}, FAILED, []),
        ({"groups": ["web"]}, FAILED, []),
        ({"severity": "warning"}, PAUSED, [""]),
        ({"owner": "w"}, PAUSED, []),
    ],
)
def test_a_change_is_selected_by_all_filters(
    fields: dict[str, Any], of: FeedCommit, groups: list[str]
) -> None:
    selection = n.Selection(table(cloudevents={"url": "http://a"}, **fields))
    notifications = selection.notifications(of, GROUPS, HOSTS)
    assert [c.group for found in notifications for c in found.commit.changes] == groups
    assert len(notifications) == bool(groups)  # one for all of a kind
    events = {e.group for found in notifications for e in found.commit.events}
    assert events == set(groups) - {""}


def message(of: FeedCommit) -> n.Message:
    selection = n.Selection(table(cloudevents={"url": "http://a"}, kinds=list(KINDS)))
    return n.single("o", selection.notifications(of, GROUPS, HOSTS)[0])


def test_ids_depend_on_nothing_but_the_commit_and_the_kind() -> None:
    assert message(BOTH).id == message(BOTH).id == "o-7-raised"


def test_the_maintenance_of_several_groups_is_one_message_in_local_time() -> None:
    many = raised(event("web", "web-0", host="h1"), event("db", "db-0", "db-1", "db-2", host="h1"))
    zone = table(cloudevents={"url": "http://a"}, timezone="Europe/Berlin").zone
    subject = text.subject(message(many), zone)
    assert subject == (
        "Reboot of 4 machines (2 groups on host h1): announced, not before"
        " Sun 2026-10-25 02:45 CEST (00:45Z)"
    )


@pytest.mark.parametrize(
    ("of", "subject"),
    [
        (FAILED, "Host h1 has failed"),
        (PAUSED, "Rollout R1, Reboot, is paused by itself"),
        (commit(FeedChange(what="token-created", note="x")), "token-created"),
        (
            commit(FeedChange(what="machine-gone", group="web", machines=["web-0"])),
            "machine-gone: web-0",
        ),
        (
            commit(FeedChange(what="machine-not-back", group="web", machines=["web-0"])),
            "not back after an event: web-0",
        ),
    ],
)
def test_the_subject_of_a_mail_names_event_and_machines(of: FeedCommit, subject: str) -> None:
    assert text.subject(message(of), UTC) == subject


@pytest.mark.parametrize("what", KINDS)
def test_every_kind_has_a_subject(what: str) -> None:
    of = raised(event("web", "web-0"))
    of.changes[0].what = what
    of.changes[0].host = "h1"
    assert text.subject(message(of), UTC)
    assert text.body(message(of), UTC).strip()


def test_the_default_kinds_exist() -> None:
    assert set(DEFAULT_KINDS) <= set(KINDS)


def test_text_from_others_cannot_begin_a_line() -> None:
    words = "line\r\nBcc: mallory@example.org"
    of = raised(event("web", "web-0", description=words))
    body = text.body(message(of), UTC)
    assert not any(line.startswith("Bcc") for line in body.splitlines())
    renamed = raised(event("web", words))
    assert "\n" not in text.subject(message(renamed), UTC)


def test_entries_beyond_the_limit_of_a_message_are_counted() -> None:
    notifications = [message(BOTH).notifications[0]] * 3
    several = n.combined("o", notifications, Counter({"started": 250}), None, 9)
    assert several.id == "o-7-9"
    last = text.body(several, UTC).splitlines()[-1]
    assert last == "And 250 more changes: 250 started. See 'forewarn history'."
    assert text.subject(several, UTC).endswith("; and 252 other changes")


def test_pauses_grow_and_a_target_that_refuses_is_left_alone_for_longer() -> None:
    away = [_pause_after(failures, DeliveryFailed("")) for failures in range(1, 30)]
    assert 0.9 <= away[0] <= 1.1
    assert 3.6 <= away[2] <= 4.4
    assert max(away) <= 330
    assert 54 <= _pause_after(1, DeliveryFailed("", refused=True)) <= 66
    assert _pause_after(1, DeliveryFailed("", refused=True, gone=True)) >= 3_240
    assert _pause_after(1, DeliveryFailed("", wait=120.0)) == 120.0
