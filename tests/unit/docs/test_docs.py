"""The documents tell the truth about what can be reached mechanically."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer.main

from forewarn.cli.app import app
from forewarn.control.http import errors
from forewarn.control.http.access import token_attempts
from forewarn.control.routes import feed as control_feed
from forewarn.control.schema import fleet
from forewarn.control.server import connections
from forewarn.core import events, labels
from forewarn.core.history import RecordKind
from forewarn.core.lifecycle import TABLE, diagram
from forewarn.core.time import DAY
from forewarn.drivers.command.driver import CHECK_TIMEOUT
from forewarn.drivers.command.options import CommandOptions
from forewarn.judge import RULES
from forewarn.node.settings import Settings
from forewarn.service.access import access_tokens
from forewarn.service.access.oidc import AccessRule, Oidc
from forewarn.service.fleet import read
from forewarn.service.rollouts import rollouts
from forewarn.support import limits
from forewarn.support.text import in_words
from forewarn.testing import Service
from forewarn.wire import extensions
from helpers.paths import ROOT

KIB, MIB = 1024, 1024**2
DOCS = ROOT / "docs"
README = DOCS.parent / "README.md"


def test_the_diagram_of_an_events_life_is_drawn_from_the_table() -> None:
    assert TABLE
    assert diagram() in (DOCS / "contribute" / "architecture.md").read_text()


SETTINGS = [f for f in msgspec.structs.fields(Settings) if f.name != "driver_options"]


@pytest.mark.parametrize("field", SETTINGS, ids=lambda f: f.name)
def test_every_setting_is_documented_with_its_default(field: msgspec.structs.FieldInfo) -> None:
    page, _, _ = _settings().partition("## Settings of a node")
    (row,) = re.findall(rf"^\| `{field.name}` \| (.*?) \|", page, re.MULTILINE)
    default = field.default
    if isinstance(default, bool):
        default = str(default).lower()
    assert row == ("none" if default in ("", None) else f"`{default}`")


@pytest.mark.parametrize("field", msgspec.structs.fields(CommandOptions), ids=lambda f: f.name)
def test_every_setting_of_a_program_is_documented(field: msgspec.structs.FieldInfo) -> None:
    default = "none" if field.required else f"`{str(field.default).replace('False', 'false')}`"
    assert f"| `command.{field.name}` | {default} |" in _settings()


@pytest.mark.parametrize("table", [Oidc, AccessRule], ids=["oidc", "oidc.access"])
def test_every_setting_about_an_issuer_is_documented(table: type[msgspec.Struct]) -> None:
    place = "oidc.access" if table is AccessRule else "oidc"
    for field in msgspec.structs.fields(table):
        default = field.default
        if field.name == "access":
            continue
        if isinstance(default, tuple):
            default = json.dumps(list(default)) if default else ""
        shown = "none" if field.required or not default else f"`{default}`"
        assert f"| `{place}.{field.name}` | {shown} |" in _settings()


LIMITS = {
    "How far ahead an event can be announced": f"{events.MAX_NOTICE // DAY} days",
    "Machines in one request for an event": f"{limits.MAX_EVENT_MACHINES:,}",
    "Active events of a group": f"{events.MAX_ACTIVE_EVENTS:,}",
    "Length of a description": f"{limits.MAX_DESCRIPTION:,} characters",
    "Longest impact of an event": f"{limits.MAX_DURATION_SECONDS:,} s",
    "Length of a readiness note": f"{limits.MAX_READY_NOTE:,} characters",
    "Length of the name of a machine, group or host": f"{read.MAX_NAME} characters",
    "Machines of a scale set": str(read.MAX_PLACEMENT_GROUP),
    "Labels of a host, group or machine": str(labels.MAX_LABELS),
    "Length of a label's name and of its value": f"{labels.MAX_LABEL_NAME} characters",
    "Size of a fleet file": f"{fleet.MAX_FLEET_BYTES // MIB} MiB",
    "Rollouts under way": str(rollouts.MAX_RUNNING),
    "Rollouts kept in all; the oldest that are over are forgotten": f"{rollouts.MAX_ROLLOUTS:,}",
    "Size of a request body, except fleets": f"{errors.MAX_BODY // MIB} MiB",
    "Open connections; idle ones make room for new ones": (
        f"{connections.MAX_OPERATOR_CONNECTIONS:,}"
    ),
    "Open connections from one address, or one /64 of IPv6": (
        f"{connections.MAX_OPERATOR_SHARE:,}"
    ),
    "Events in one page of a list": f"{limits.MAX_EVENT_PAGE:,}",
    "History records in one page": f"{limits.MAX_HISTORY_PAGE:,}",
    "Machines, groups, hosts, rollouts or tokens in one page": f"{limits.MAX_PAGE:,}",
    "Wrong tokens from one address within a minute; further requests are answered 429": str(
        token_attempts.MAX_FAILED
    ),
    "Streams and long-polls of the feed": f"{control_feed.MAX_STREAMS:,}",
    "Lifetime of an access token": f"{access_tokens.ACCESS_LIFE // 60} min",
    "Wait for a new document: default, and longest": (
        f"{extensions.DEFAULT_WAIT:g} s, {extensions.MAX_WAIT / 60:g} min"
    ),
    "Time for a program to say whether it would carry out an event": f"{CHECK_TIMEOUT:g} s",
}


def test_the_limits_are_those_of_the_code() -> None:
    text = _settings().partition("\n## Limits\n")[2].partition("\n## ")[0]
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", text, re.MULTILINE))
    notices = rows.pop("Shortest notice, unless short notice is requested explicitly")
    assert rows == LIMITS
    for type in events.EventType:
        assert type.value in notices
        assert in_words(type.traits.notice) in notices


@pytest.mark.parametrize("page", sorted((DOCS / "contribute").glob("*.md")), ids=lambda p: p.name)
def test_every_file_that_contributors_are_shown_exists(page: Path) -> None:
    named = set(
        re.findall(r"`((?:[a-z_]+/)+[a-z_]+(?:\.py|\.md|\.json|\.toml)?)`", page.read_text())
    )
    roots = (DOCS.parent / "src" / "forewarn", DOCS.parent)
    missing = [name for name in named if not any((root / name).exists() for root in roots)]
    assert missing == []


def test_every_kind_of_record_is_documented() -> None:
    text = (DOCS / "operate" / "history.md").read_text()
    table = text.partition("| kind | what happened |")[2]
    assert [what.value for what in RecordKind if f"`{what.value}`" not in table] == []


def test_every_rule_of_the_judge_is_documented() -> None:
    text = (DOCS / "reference" / "traces.md").read_text()
    assert [rule for rule in RULES if f"`{rule}`" not in text] == []


def _commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def test_every_command_of_the_readme_exists() -> None:
    known = set(_commands())
    used = set(re.findall(r"^(?:\$ )?forewarn ([a-z]+)\b", README.read_text(), re.MULTILINE))
    assert used
    assert used <= known


def test_every_command_is_documented() -> None:
    text = (DOCS / "reference" / "commands.md").read_text()
    names = [
        f"{name} {one}".strip()
        for name, command in _commands().items()
        for one in getattr(command, "commands", {"": command})
    ]
    assert len(names) > 15
    assert [name for name in names if f"`forewarn {name}" not in text] == []


def test_the_readmes_test_passes(forewarn: Service) -> None:
    names: dict[str, object] = {}
    exec(_in_readme("python", "def test_"), names)
    test = names["test_fifteen_minutes_of_notice"]
    assert callable(test)
    test(forewarn)


def test_the_readmes_client_prepares_and_approves(
    forewarn: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Enough(Exception):
        pass

    web = forewarn.scale_set("web", 2)
    monkeypatch.setenv("FOREWARN_METADATA", web[0].url)
    web[1].restart()
    raised = [web[0].restart()]
    poll_report = []

    def prepare_for(event: object) -> None:
        poll_report.append(event)
        if len(poll_report) == 2:
            raise Enough
        raised.append(web[0].schedule("Freeze"))

    with pytest.raises(Enough):
        exec(_in_readme("python", "import Client"), {"prepare_for": prepare_for})
    assert [getattr(event, "id", None) for event in poll_report] == [event.id for event in raised]
    assert raised[0].status == "Started"


def _in_readme(language: str, word: str) -> str:
    """The one block of it with that in it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if word in block]
    assert isinstance(block, str)
    return block


def _settings() -> str:
    return (DOCS / "reference" / "settings.md").read_text()
