"""`forewarn completion`: print the completion script for a shell."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli.completion import SHELLS, script
from forewarn.support.text import either_of


def _shell(name: str) -> str:
    if name not in SHELLS:
        raise typer.BadParameter(f"unknown shell '{name}'; expected {either_of(SHELLS)}")
    return name


def completion(
    shell: Annotated[
        str,
        typer.Argument(
            callback=_shell,
            metavar="SHELL",
            help=f"Name of the shell: {either_of(SHELLS)}.",
            autocompletion=lambda: list(SHELLS),
        ),
    ],
) -> None:
    """Print a shell completion script.

    To install it for bash, zsh or fish:

    echo 'eval "$(forewarn completion bash)"' >> ~/.bashrc

    mkdir -p ~/.zfunc

    forewarn completion zsh > ~/.zfunc/_forewarn

    echo 'fpath+=~/.zfunc; autoload -Uz compinit; compinit' >> ~/.zshrc

    mkdir -p ~/.config/fish/completions

    forewarn completion fish > ~/.config/fish/completions/forewarn.fish
    """
    typer.echo(script(shell), nl=False)
