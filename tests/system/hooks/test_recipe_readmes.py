"""What the recipes' READMEs tell an operator to write is what the agent reads, and every variable
that a hook reads is told of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forewarn.agent.config import read as reading
from helpers.hook_recipes import RECIPES

FOLDERS = sorted(readme.parent.name for readme in RECIPES.glob("*/README.md"))


def test_there_are_three_recipes() -> None:
    assert FOLDERS == ["checkpoint", "nginx-upstream", "replica"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_configuration_of_a_readme_is_valid(folder: str, tmp_path: Path) -> None:
    text = (RECIPES / folder / "README.md").read_text()
    file = tmp_path / "agent.toml"
    file.write_text("".join(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)))
    config = reading.read(file)
    assert not config.warnings
    (hook,) = config.hooks.values()
    assert set(hook.stages) == {"prepare", "undo"}
    program = Path(hook.commands["undo"][-1])
    assert program.parent.name == folder
    assert (RECIPES / folder / program.name).exists() or f"`{program.name}` is" in text


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_variable_of_a_recipe_is_documented(folder: str) -> None:
    text = (RECIPES / folder / "README.md").read_text()
    for program in (RECIPES / folder).glob("*.py"):
        read = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)*)"', program.read_text()))
        variables = {name for name in read if "_" in name}
        for name in variables - {"REDISCLI_AUTH"}:
            assert name.startswith("FOREWARN_") or f"| `{name}` |" in text, name
