"""Writes the files for terminals anew: the man pages and the completion scripts.

The man pages are made from the commands' own help, so that the two never differ.
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
NODE_MAN_PAGE = ROOT / "packaging" / "node" / "forewarn-node.1"
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

NODE_DESCRIPTION = """\
forewarn-node answers the machines on a host at that host's 169.254.169.254, as the control of a
fleet decides. It is the command 'forewarn node', and takes the same arguments. systemd runs it as
forewarn-node.service."""

NODE_ENVIRONMENT = {
    "FOREWARN_NODE_CONFIG": "Settings file, instead of --config.",
    "FOREWARN_NODE_*": "A setting in capitals, such as FOREWARN_NODE_LOG_LEVEL.",
}

NODE_FILES = {
    "/etc/forewarn/node.toml": "The settings, each with its default.",
    "/var/lib/forewarn-node": "The journal: what control has told this node.",
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
        lines += _command("forewarn", path, command)
    lines += _sections(ENVIRONMENT=ENVIRONMENT, EXIT_STATUS=EXIT_STATUS, EXAMPLES=EXAMPLES)
    return "\n".join(lines) + "\n"


def node_man_page() -> str:
    """Return the man page of the command that the package of a node has."""
    node: Any = typer.main.get_command(app)
    node = node.commands["node"]
    lines = [
        f'.TH FOREWARN\\-NODE 1 "" "forewarn {__version__}" "User Commands"',
        ".SH NAME",
        r"forewarn\-node \- Scheduled Events for the guests of a host",
        ".SH SYNOPSIS",
        r".B forewarn\-node",
        r"[\fIOPTIONS\fR] [\fICOMMAND\fR] [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION",
        _text(NODE_DESCRIPTION),
        ".SH OPTIONS",
        *_options(node),
        ".SH COMMANDS",
    ]
    for path, command in commands(node):
        lines += _command("forewarn-node", path, command)
    lines += _sections(ENVIRONMENT=NODE_ENVIRONMENT, FILES=NODE_FILES, EXIT_STATUS=EXIT_STATUS)
    return "\n".join(lines) + "\n"


def _command(program: str, path: tuple[str, ...], command: Any) -> Iterator[str]:
    yield f".SS {_text(' '.join(path))}"
    yield _usage((program, *path), command)
    yield ".PP"
    yield _text(" ".join((command.help or "").split()))
    yield from _options(command)


def _sections(**sections: dict[str, str]) -> Iterator[str]:
    for title, entries in sections.items():
        yield f".SH {title.replace('_', ' ')}"
        for term, meaning in entries.items():
            yield from (".TP", f".B {_text(term)}", _text(meaning))


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
    return " ".join([rf"\fB{_text(' '.join(path))}\fR", r"[\fIOPTIONS\fR]", *arguments])


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
    NODE_MAN_PAGE.write_text(node_man_page())


if __name__ == "__main__":
    publish()
