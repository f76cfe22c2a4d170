"""Completion in real shells, with names from a running service; and the man page as it is shown."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.testing import SAMPLE, Service
from helpers.clean_root import needed
from helpers.waiting import LIMIT
from helpers.write_man_page import MAN_PAGE, SCRIPTS


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        service["web_0"].restart()
        yield service


def in_shell(service: Service, *words: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "FOREWARN_URL": service.control_url}
    done = subprocess.run(
        words,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_bash(service: Service, *line: str) -> list[str]:
    """Return what bash suggests for the last word of a line."""
    script = (
        'eval "$(forewarn completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1));'
        " _forewarn_completion forewarn; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    return in_shell(service, "bash", "--norc", "-c", script, "bash", *line).split()


def test_bash_completes_commands_options_and_names(service: Service) -> None:
    needed("bash")
    assert in_bash(service, "forewarn", "roll") == ["rollout"]
    assert "--short-notice" in in_bash(service, "forewarn", "event", "schedule", "--s")
    machines = ["web_0", "web_1", "web_2", "web_3"]
    assert in_bash(service, "forewarn", "machine", "restart", "web") == machines
    assert in_bash(service, "forewarn", "event", "schedule", "Re") == ["Reboot", "Redeploy"]
    assert in_bash(service, "forewarn", "event", "schedule", "Reboot", "web") == machines
    (event,) = service.events
    assert in_bash(service, "forewarn", "event", "show", "") == [event.id]
    assert in_bash(service, "forewarn", "event", "show", event.id[:4]) == [event.id]


def test_fish_completes_names_and_describes_them(service: Service) -> None:
    needed("fish")
    script = "forewarn completion fish | source; complete -C 'forewarn machine restart web_'"
    lines = in_shell(service, "fish", "--no-config", "-c", script).splitlines()
    name, description = lines[0].split("\t")
    assert name == "web_0"
    assert {"web,", "host-a"} <= set(description.split())
    assert len(lines) == 4


ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "fpath=(${(q)1} \\$fpath); autoload -Uz compinit; compinit -u; PROMPT=; print READY"
zpty -r shell text '*READY*READY*'
zpty -w -n shell $'forewarn machine restart jump\\t'
zpty -r shell text '*jumpbox*' && print -r -- "$text"
zpty -d shell
"""


def test_zsh_completes_on_the_first_call_of_the_packaged_function(service: Service) -> None:
    needed("zsh")
    functions = str(SCRIPTS["zsh"].parent)
    assert "jumpbox" in in_shell(service, "zsh", "-f", "-c", ZSH, "zsh", functions)


def test_the_man_page_is_shown_without_a_warning() -> None:
    needed("man")
    shown = subprocess.run(
        ["man", "--warnings", "--local-file", MAN_PAGE],
        env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "forewarn event schedule [OPTIONS]" in shown.stdout
    assert "--short-notice" in shown.stdout


def test_an_unknown_shell_is_refused() -> None:
    forewarn = shutil.which("forewarn", path=str(Path(sys.executable).parent))
    assert forewarn is not None
    done = subprocess.run(
        [forewarn, "completion", "tcsh"], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 2
    assert "'tcsh'; expected bash," in done.stderr
