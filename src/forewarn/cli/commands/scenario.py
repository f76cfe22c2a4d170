"""`forewarn scenario`: list, show, check and run scenarios.

Scenarios are implemented in `testing.scenarios`; running one is in `scenario_run.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.commands.record import from_
from forewarn.cli.commands.scenario_run import find_or_fail, run
from forewarn.cli.commands.service_options import need_extra
from forewarn.cli.output import Json, print_json, print_table, say, say_text

app = typer.Typer(no_args_is_help=True)

ScenarioName = Annotated[
    str,
    typer.Argument(
        help="Name of a scenario, or its file.",
        metavar="SCENARIO",
        autocompletion=completion.scenarios,
    ),
]


@app.command("list")
def list_(json: Json = False) -> None:
    """List the scenarios that come with forewarn."""
    need_extra("test")
    from forewarn.testing import scenarios

    built_in = [scenarios.find(name) for name in scenarios.names()]
    if json:
        print_json([{"scenario": s.name, "about": s.about, "as": s.under_test} for s in built_in])
        return
    rows = [(s.name, ", ".join(s.under_test), s.about) for s in built_in]
    print_table(("SCENARIO", "AS", "ABOUT"), rows)


@app.command()
def show(scenario: ScenarioName) -> None:
    """Print a scenario file, for example as a template for your own."""
    need_extra("test")
    say_text(find_or_fail(scenario, 1).text)


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files."""
    need_extra("test")
    from forewarn.testing.scenarios import schema_text

    typer.echo(schema_text(), nl=False)


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Scenario files.")],
) -> None:
    """Check scenario files. All errors are reported, with file and line."""
    need_extra("test")
    from forewarn.testing.scenarios import ScenarioError, load

    failed = False
    for file in files:
        try:
            scenario = load(file)
        except ScenarioError as error:
            failed = True
            for problem in error.problems:
                say(f"forewarn: {problem}", err=True)
            continue
        steps, expectations = len(scenario.steps), len(scenario.expectations)
        counts = f"steps: {steps}, expectations: {expectations}"
        say(f"{file}: scenario {scenario.name}: {counts}")
    if failed:
        raise typer.Exit(1)


app.command("run")(run)
app.command("from")(from_)  # listed last in --help
