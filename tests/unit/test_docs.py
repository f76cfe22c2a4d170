"""The documents tell the truth about what can be told mechanically."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from forewarn.cli.app import app
from forewarn.cli.settings import CommandTable, Settings
from forewarn.control import fleet as control_fleet
from forewarn.control import fleet_schema, machines
from forewarn.core import EventType, announce, events, selection
from forewarn.core.decide import BACK_OFF_FIRST, BACK_OFF_MOST
from forewarn.core.history import What
from forewarn.core.lifecycle import TABLE, diagram
from forewarn.core.words import in_words
from forewarn.drivers import program, simulated
from forewarn.drivers.command import ASK_AGAIN, CHECK_TIMEOUT, MAX_REASON
from forewarn.drivers.room import GROUP_SHARE
from forewarn.service import (
    clock,
    difference,
    fleetbuilding,
    fleetfile,
    fleetyaml,
    history,
    suggest,
)
from forewarn.store.sqlite import PRUNE_SLICE
from forewarn.testing.judge import RULES

DOCS = Path(__file__).parents[2] / "docs"
README = DOCS.parent / "README.md"


def test_the_diagram_of_an_events_life_is_drawn_from_the_table() -> None:
    assert TABLE
    assert diagram() in (DOCS / "architecture.md").read_text()


@pytest.mark.parametrize("field", msgspec.structs.fields(Settings), ids=lambda f: f.name)
def test_every_setting_is_documented_with_its_default(field: msgspec.structs.FieldInfo) -> None:
    (row,) = re.findall(rf"^\| `{field.name}` \| (.*?) \|", _settings(), re.MULTILINE)
    default = field.default
    if isinstance(default, bool):
        default = str(default).lower()
    assert row == ("none" if default in ("", None) else f"`{default}`")


@pytest.mark.parametrize("field", msgspec.structs.fields(CommandTable), ids=lambda f: f.name)
def test_every_setting_of_a_program_is_documented(field: msgspec.structs.FieldInfo) -> None:
    default = "none" if field.required else f"`{str(field.default).replace('False', 'false')}`"
    assert f"| `command.{field.name}` | {default} |" in _settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_NOTICE", "90 days"),
        ("MAX_DESCRIPTION", f"{events.MAX_DESCRIPTION:,} characters"),
        ("MAX_DURATION_SECONDS", f"{events.MAX_DURATION_SECONDS:,}"),
        ("MAX_ACTIVE_EVENTS", f"{events.MAX_ACTIVE_EVENTS:,}"),
        ("MAX_READY_NOTE", f"{events.MAX_READY_NOTE:,} characters"),
        ("TIGHT_NOTICE", in_words(announce.TIGHT_NOTICE)),
        ("MAX_PLACEMENT_GROUP", str(fleetfile.MAX_PLACEMENT_GROUP)),
        ("MAX_COMPARED", str(suggest.MAX_COMPARED)),
        ("MAX_MACHINES", f"{machines.MAX_MACHINES:,}"),
        ("MAX_HOST_BYTES", f"{control_fleet.MAX_HOST_BYTES // 1024**2} MiB"),
        ("MAX_NAME", f"{fleetfile.MAX_NAME} characters"),
        ("MAX_DOMAIN", str(fleetfile.MAX_DOMAIN)),
        ("MAX_DEPTH", str(fleetyaml.MAX_DEPTH)),
        ("MAX_ALIASED", f"{fleetyaml.MAX_ALIASED:,}"),
        ("MAX_DETAILED", f"{difference.MAX_DETAILED:,}"),
        ("MAX_LABELS", str(selection.MAX_LABELS)),
        ("MAX_TERMS", str(selection.MAX_TERMS)),
        ("MAX_FLEET_BYTES", f"{fleet_schema.MAX_FLEET_BYTES // 1024**2} MiB"),
        ("DEFAULT_DOMAINS", str(fleetbuilding.DEFAULT_DOMAINS)),
        ("STEP", in_words(clock.STEP)),
        ("STALL", in_words(clock.STALL)),
        ("KEPT_IMPACTS", f"{simulated.KEPT_IMPACTS:,}"),
        ("MAX_SAID", f"{program.MAX_SAID:,} bytes"),
        ("MAX_ANSWER", f"{program.MAX_ANSWER:,} bytes"),
        ("MAX_REASON", f"{MAX_REASON} characters"),
        ("ASK_AGAIN", in_words(ASK_AGAIN)),
        ("CHECK_TIMEOUT", f"{CHECK_TIMEOUT:g} s"),
        ("END_GRACE", f"{program.END_GRACE:g} s"),
        ("GROUP_SHARE", str(GROUP_SHARE)),
        ("HISTORY_LEAST", in_words(history.HISTORY_LEAST)),
        ("PRUNE_EVERY", f"{history.PRUNE_EVERY:.0f} s"),
        ("MEANT_AT_MOST", str(history.MEANT_AT_MOST)),
        ("PRUNE_SLICE", str(PRUNE_SLICE)),
    ],
)
def test_every_fixed_limit_is_documented(name: str, value: str) -> None:
    assert f"| `{name}` | {value} |" in _settings()


def test_the_promised_notices_and_back_off_are_documented() -> None:
    notices = {type: in_words(promise.notice) for type, promise in events.PROMISES.items()}
    assert notices[EventType.FREEZE] == notices[EventType.REBOOT] == "15 min"
    for type in (EventType.REDEPLOY, EventType.PREEMPT, EventType.TERMINATE):
        assert f"{notices[type]} {type.value}" in _settings()
    pauses = in_words(BACK_OFF_FIRST), in_words(BACK_OFF_MOST)
    assert f"| {', '.join(pauses)} |" in _settings()


def test_every_kind_of_record_is_documented() -> None:
    text = (DOCS / "history.md").read_text()
    table = text.partition("| kind | what happened |")[2]
    assert [what.value for what in What if f"`{what.value}`" not in table] == []


def test_every_rule_of_the_judge_is_documented() -> None:
    text = (DOCS / "traces.md").read_text()
    assert [rule for rule in RULES if f"`{rule}`" not in text] == []


def test_every_command_of_the_readme_exists() -> None:
    known = {command.name for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    used = set(re.findall(r"^(?:\$ )?forewarn ([a-z]+)\b", README.read_text(), re.MULTILINE))
    assert used
    assert used <= known


def test_every_command_is_documented() -> None:
    text = (DOCS / "commands.md").read_text()
    names = [command.name for command in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for command in group.typer_instance.registered_commands:
            callback = command.callback
            assert callback is not None
            names.append(f"{group.name} {command.name or callback.__name__}")
    assert len(names) > 15
    assert [name for name in names if f"`forewarn {name}" not in text] == []


def test_the_readmes_test_passes() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    test = names["test_fifteen_minutes_of_notice"]
    assert callable(test)
    test()


def _settings() -> str:
    return (DOCS / "settings.md").read_text()
