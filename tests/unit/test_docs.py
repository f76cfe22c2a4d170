"""The documents tell the truth about what can be told mechanically."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from forewarn.cli.app import app
from forewarn.cli.settings import Settings
from forewarn.core import EventType, announce, events
from forewarn.core.decide import BACK_OFF_FIRST, BACK_OFF_MOST
from forewarn.core.lifecycle import TABLE, diagram
from forewarn.core.words import in_words
from forewarn.drivers import simulated
from forewarn.service import clock, fleetfile
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
    assert row == ("none" if default == "" else f"`{default}`")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_NOTICE", "90 days"),
        ("MAX_DESCRIPTION", f"{events.MAX_DESCRIPTION:,} characters"),
        ("MAX_DURATION_SECONDS", f"{events.MAX_DURATION_SECONDS:,}"),
        ("MAX_ACTIVE_EVENTS", f"{events.MAX_ACTIVE_EVENTS:,}"),
        ("TIGHT_NOTICE", in_words(announce.TIGHT_NOTICE)),
        ("MAX_PLACEMENT_GROUP", str(fleetfile.MAX_PLACEMENT_GROUP)),
        ("MAX_NAME", f"{fleetfile.MAX_NAME} characters"),
        ("MAX_DOMAIN", str(fleetfile.MAX_DOMAIN)),
        ("STEP", in_words(clock.STEP)),
        ("STALL", in_words(clock.STALL)),
        ("KEPT_IMPACTS", f"{simulated.KEPT_IMPACTS:,}"),
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
