"""Shell completion: the packaged scripts and man page are what the code would write now."""

from __future__ import annotations

import enum
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer
import typer.main
from typer.testing import CliRunner

from forewarn.cli import completion
from forewarn.cli.app import app
from helpers import write_man_page
from helpers.paths import ROOT


def test_the_packaged_scripts_are_those_of_the_command() -> None:
    for shell, path in write_man_page.SCRIPTS.items():
        assert path.read_text() == completion.script(shell), (
            "make them anew: PYTHONPATH=tests python -m helpers.write_man_page"
        )


def test_the_packaged_man_page_describes_every_command_and_option() -> None:
    page = write_man_page.MAN_PAGE.read_text()
    assert page == write_man_page.man_page(), (
        "make it anew: PYTHONPATH=tests python -m helpers.write_man_page"
    )
    plain = page.replace("\\-", "-")
    for command in ("rollout plan", "event schedule", "completion", "status"):
        assert f".SS {command}\n" in plain
    assert "--short-notice" in plain
    assert write_man_page.NODE_MAN_PAGE.read_text() == write_man_page.node_man_page()


def test_every_name_of_something_in_the_service_is_completed() -> None:
    """A new argument or option for the name of a machine, group, host or event gets it, too."""
    named = {"machine", "group", "host", "event"}
    not_of_the_service = {
        "record",
        "scenario from-recording",
        "agent check",
        "driver join",
        "node",
        "node join",
    }
    missing = [
        f"{' '.join(path)}: {param.name}"
        for path, command in write_man_page.commands(typer.main.get_command(app))
        if " ".join(path) not in not_of_the_service
        for param in command.params
        if param.name in named and getattr(param, "_custom_shell_complete", None) is None
    ]
    assert missing == []


# Options whose values are free: text, numbers, times, durations, addresses, programs, files.
FREE_VALUES = {
    "fence",
    "key",
    "arm_address",
    "speed", "metadata", "control", "throttle", "enable_delay", "driver_command", "gate",
    "if_match", "since", "until", "starts_from", "limit", "after_seq", "after", "every", "for_",
    "timeout", "endpoint", "files",
    "min_freeze", "exec_", "title", "count", "to",
    "user_event_limit", "terminate_notice", "notice", "image_notice",
    "not_before", "description", "duration", "note", "reason", "at_once", "window", "gate_http",
    "gate_command", "gate_timeout", "bake", "lasts", "times", "from_", "probability", "seed",
    "seconds", "status", "expires", "wait", "react", "busy_check", "name", "command", "by", "url",
    "token_file", "ca", "cause", "moved", "ticket", "order_by", "canary", "waves",
    "max_failures", "deadline", "step", "remove",
    "blackout", "body", "may_postpone", "back_within", "database", "many", "token",
    "begin", "hours", "sums", "stop_before",
}  # fmt: skip


def _completed_by_its_type(param: Any) -> bool:
    kind = param.type_descriptor.annotation
    return isinstance(kind, type) and issubclass(kind, Path | enum.Enum)


def test_every_option_with_known_values_is_completed() -> None:
    """Whatever is neither completed, nor a flag, nor a file or directory, takes free values."""
    options = {
        f"{' '.join(path)} {param.name}": param
        for path, command in write_man_page.commands(typer.main.get_command(app))
        for param in command.params
        if not getattr(param, "is_flag", False)
        and not _completed_by_its_type(param)
        and getattr(param, "_custom_shell_complete", None) is None
    }
    own = {
        "agent test label",
        "record machine",
        "driver join host",
        "node host",
        "node join host",
    }  # not those of a service
    assert {
        name for name in options if name not in own and name.rpartition(" ")[2] not in FREE_VALUES
    } == set()


def values(
    complete: Callable[[str], Iterable[completion.Suggestion]], incomplete: str
) -> list[str]:
    return [value for value, _ in complete(incomplete)]


def test_values_are_suggested_one_or_several() -> None:
    assert values(completion.one_of("real", "virtual"), "v") == ["virtual"]
    assert values(completion.rules, "missing") == ["missing-header"]
    assert values(completion.record_kinds, "raised,start") == ["raised,started"]
    assert values(completion.some_of("Reboot", "Redeploy"), "Reboot,Re") == ["Reboot,Redeploy"]


def test_machines_of_a_file_are_suggested(tmp_path: Path) -> None:
    context = typer.Context(typer.main.get_command(app))
    context.params = {"fleet": None, "scenario": "user-reboot"}
    assert ("web_0", "") in completion.machines_of_fleet(context, "web")
    assert ("web_0", "") in completion.machines_of_scenario(context, "")
    context.params = {"fleet": tmp_path / "none.yaml", "scenario": "none"}
    assert list(completion.machines_of_fleet(context, "")) == []
    assert list(completion.machines_of_scenario(context, "")) == []


def test_the_install_lines_of_the_help_work_as_typed(tmp_path: Path) -> None:
    help = CliRunner().invoke(app, ["completion", "--help"], env={"COLUMNS": "100"}).output
    lines = [line.strip() for line in help.splitlines() if ">" in line or "mkdir" in line]
    assert len(lines) == 6
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path}
    subprocess.run(["bash", "-euc", "\n".join(lines)], env=environment, check=True, timeout=60)
    assert (tmp_path / ".zfunc/_forewarn").read_text() == completion.script("zsh")
    fish = tmp_path / ".config/fish/completions/forewarn.fish"
    assert fish.read_text() == completion.script("fish")
    assert "forewarn completion bash" in (tmp_path / ".bashrc").read_text()
    for line in lines:
        assert line in (ROOT / "docs/reference/commands.md").read_text()


def test_without_a_service_there_are_no_suggestions() -> None:
    command = typer.main.get_command(app)
    context = typer.Context(command)
    context.params = {"url": "http://127.0.0.1:1"}
    assert list(completion.machines(context, "")) == []
    context.params = {"url": "not a URL"}
    assert list(completion.machines(context, "")) == []
