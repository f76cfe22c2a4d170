"""Writes the files for terminals anew: the man page and the completion scripts.

The man page is made from the commands' own help, so that the two never differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from forewarn import __version__
from forewarn.cli import completion
from forewarn.cli.app import app
from helpers.paths import ROOT

SHARE = ROOT / "packaging" / "share"
MAN_PAGE = SHARE / "man" / "man1" / "forewarn.1"
SCRIPTS = {
    "bash": SHARE / "bash-completion" / "completions" / "forewarn",
    "zsh": SHARE / "zsh" / "site-functions" / "_forewarn",
    "fish": SHARE / "fish" / "vendor_completions.d" / "forewarn.fish",
}

DESCRIPTION = """\
forewarn announces maintenance to machines before it happens. It serves the Scheduled Events
metadata endpoint of Azure, in every api-version, for machines of any fleet, and contains the
platform behind the endpoint, a client and agent for machines, and a test kit."""

ENVIRONMENT = {
    "FOREWARN_URL": "URL of the service's control API, instead of --url.",
    "FOREWARN_TOKEN, FOREWARN_TOKEN_FILE": "The access token, or a file that contains it.",
    "FOREWARN_CA": "CA bundle (PEM) used to verify the service's certificate.",
    "FOREWARN_CONFIG": "Settings file of the service, instead of --config.",
    "FOREWARN_METADATA": "URL of the metadata endpoint, for the client and the agent.",
}

EXIT_STATUS = {
    "0": "Success.",
    "1": "The command was refused or failed; a line on standard error says why.",
    "2": "Wrong usage.",
}

EXAMPLES = {
    "forewarn dev": "Run a complete service on this machine, with a sample fleet.",
    "forewarn event schedule Reboot web_0 --notice 20m": "Announce a reboot of a machine.",
    "forewarn status": "Show what has started, what is next, and what waits and why.",
    "forewarn scenario run spot-eviction -- ./my-app": "Test how a program handles an eviction.",
    "forewarn watch": "Show the events of this machine, inside a machine.",
}


def man_page() -> str:
    """Return the man page as troff source."""
    root = typer.main.get_command(app)
    lines = [
        f'.TH FOREWARN 1 "" "forewarn {__version__}" "User Commands"',
        ".SH NAME",
        r"forewarn \- Scheduled Events for any fleet",
        ".SH SYNOPSIS",
        r".B forewarn",
        r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION",
        _text(DESCRIPTION),
        ".PP",
        r"\fBforewarn \fICOMMAND\fB \-\-help\fR shows the help of one command.",
        ".SH OPTIONS",
        *_options(root),
        ".SH COMMANDS",
    ]
    for path, command in commands(root):
        lines.append(f".SS {_text(' '.join(path))}")
        lines.append(_usage(path, command))
        lines.append(".PP")
        lines.append(_text(" ".join((command.help or "").split())))
        lines += _options(command)
    for title, entries in (
        ("ENVIRONMENT", ENVIRONMENT),
        ("EXIT STATUS", EXIT_STATUS),
        ("EXAMPLES", EXAMPLES),
    ):
        lines.append(f".SH {title}")
        for term, meaning in entries.items():
            lines += [".TP", f".B {_text(term)}", _text(meaning)]
    return "\n".join(lines) + "\n"


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.commands:
        command = group.commands[name]
        if not hasattr(command, "commands") or command.invoke_without_command:
            yield (*path, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


def _usage(path: tuple[str, ...], command: Any) -> str:
    arguments = [
        rf"\fI{_text(_placeholder(param))}\fR"
        for param in command.params
        if param.param_type_name == "argument"
    ]
    return " ".join([rf"\fBforewarn {_text(' '.join(path))}\fR", r"[\fIOPTIONS\fR]", *arguments])


def _placeholder(param: Any) -> str:
    return str(param.metavar or param.name.upper().rstrip("_").replace("_", "-"))


def _options(command: Any) -> Iterator[str]:
    for param in command.params:
        if getattr(param, "hidden", False):
            continue
        if param.param_type_name == "argument":
            term = rf"\fI{_text(_placeholder(param))}\fR"
        else:
            term = rf"\fB{_text(', '.join([*param.opts, *param.secondary_opts]))}\fR"
            if not param.is_flag:
                term += rf" \fI{_text(_placeholder(param))}\fR"
        yield from (".TP", term, _text(" ".join((param.help or "").split())))


def _text(text: str) -> str:
    """Escape text for troff, so that it is printed as it is."""
    text = re.sub(r"\[/?[a-z]+\]", "", text).replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def publish() -> None:
    for shell, path in SCRIPTS.items():
        path.write_text(completion.script(shell))
    MAN_PAGE.write_text(man_page())


if __name__ == "__main__":
    publish()
