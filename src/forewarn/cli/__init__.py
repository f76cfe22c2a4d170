"""The commands. No server package is imported until one serves, and nothing is decided here."""

from __future__ import annotations


def main() -> None:
    from forewarn.cli.app import app

    app(prog_name="forewarn")


if __name__ == "__main__":
    main()
