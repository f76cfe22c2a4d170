"""Whatever the lists of the API can be filtered by, the commands that show them can."""

from __future__ import annotations

import typer.main

from forewarn.cli.app import app
from forewarn.control.app import handlers
from forewarn.control.openapi.document import document, operations
from helpers import write_man_page

# Parameters for which a command has another option, or follows the pages of the list itself.
OTHER_OPTIONS = {"past": "all", "raised_since": "since"}
# Not filters: of the pages of a list, and details that a command asks for by itself.
NO_FILTERS = {"limit", "after", "before", "oldest_first", "wait", "expected_end"}


def test_every_filter_of_a_list_is_an_option_of_its_command() -> None:
    options = {
        " ".join(path): {
            option.removeprefix("--").replace("-", "_")
            for parameter in command.params
            for option in parameter.opts
        }
        for path, command in write_man_page.commands(typer.main.get_command(app))
    }
    declared = {name: operation for name, (_, operation) in operations(handlers()).items()}
    missing = []
    lists = 0
    for path, entry in document(handlers())["paths"].items():
        if "get" not in entry:
            continue
        parameters = [p["name"] for p in entry["get"].get("parameters", ()) if p["in"] == "query"]
        filters = {OTHER_OPTIONS.get(name, name) for name in parameters if name not in NO_FILTERS}
        lists += bool(filters)
        known = [options[command] for command in declared[f"GET {path}"].commands]
        if known:
            missing += [f"{path}: {n}" for n in filters if not any(n in of for of in known)]
    assert missing == []
    assert lists > 5
