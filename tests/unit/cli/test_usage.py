"""Help texts and usage lines name values as manual pages do, for every command."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import COMMANDS, app, load_command

WIDE = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
OPTION = re.compile(r"(--[a-z-]+) +([A-Z]\S*)")
FREE_TEXT = {"--body", "--description", "--note", "--reason", "--ticket", "--title"}
# NAME, NAME..., [NAME], [NAME]..., [-- CMD...]
ARGUMENT = r"(?:\[?[A-Z][A-Z:|=-]*\]?(?:\.\.\.)?|\[-- CMD\.\.\.\])"


def help_of(command: str) -> str:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env=WIDE, prog_name="forewarn")
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_shows_no_types_of_python(name: str) -> None:
    subcommands = getattr(load_command(name), "commands", ()) if name else ()
    for command in [name, *(f"{name} {subcommand}" for subcommand in subcommands)]:
        text = help_of(command)
        assert not re.search(r"<\w+|\{\w+\}|list\[|None", text), text
        assert {option for option, value in OPTION.findall(text) if value == "TEXT"} <= FREE_TEXT
        usage = next(line.strip() for line in text.splitlines() if "Usage:" in line)
        assert re.fullmatch(rf"Usage: forewarn( [a-z-]+)* \[OPTIONS\]( {ARGUMENT})*", usage)


def test_a_flag_has_no_value_and_an_option_names_its_own() -> None:
    text = help_of("event list")
    assert re.search(r"--json\s{2,}Print JSON\.", text)
    assert re.search(r"--url\s+URL\s+URL ", text)
    assert re.search(r"--limit\s+N \[1<=x<=1000\]", text)


def test_arguments_are_named_in_the_usage_line_and_in_errors() -> None:
    assert "Usage: forewarn event schedule [OPTIONS] TYPE MACHINE...\n" in tidied(
        help_of("event schedule")
    )
    assert "Usage: forewarn scenario run [OPTIONS] [SCENARIO] [-- CMD...]\n" in tidied(
        help_of("scenario run")
    )
    result = CliRunner().invoke(app, ["event", "show"], env=WIDE, prog_name="forewarn")
    assert result.exit_code == 2
    assert re.match("forewarn: missing argument 'ID'.*'forewarn event show --help'", result.stderr)


def tidied(text: str) -> str:
    return "".join(f"{line.strip()}\n" for line in text.splitlines())


def test_the_opposite_of_a_flag_is_named_in_full_in_a_narrow_terminal() -> None:
    narrow = WIDE | {"COLUMNS": "80"}
    for words, opposite in (
        ("group policy", "Opposite: --no-all-instances-down."),
        ("dev", "Opposite: --no-observe. Default: --observe."),
    ):
        result = CliRunner().invoke(app, [*words.split(), "--help"], env=narrow)
        assert opposite in re.sub(r"[\s│]+", " ", result.stdout)
    refused = CliRunner().invoke(app, ["watch", "--mine", "--min-freeze", "x"], env=WIDE)
    assert "invalid value for '--min-freeze'" in refused.stderr  # --mine is still an option


def test_a_paragraph_of_a_help_text_is_one_line_if_it_fits() -> None:
    (line,) = (line for line in help_of("watch").splitlines() if "Approves nothing." in line)
    assert "--once" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("event schedule Reboot web_0 --duration abc", "'--duration': 'abc' "),
        ("dev --speed abc", "'--speed': 'abc' "),
        ("history --limit 0", "'--limit': 0 .*minimum is 1"),
        ("event list --limit 1001", "'--limit': 1001 .*maximum is 1000"),
        ("event schedule Reboot web_0 --notice x", "'--notice': 'x' "),
        ("clock play soon", "'DURATION': 'soon' "),
        ("run --network some true", "'--network': 'some' .*'auto', 'full'"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(words: str, message: str) -> None:
    result = CliRunner().invoke(app, words.split(), env=WIDE)
    assert result.exit_code == 2
    assert re.match(f"forewarn: invalid value .*{message}", result.stderr)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            "event list --grup web",
            "no such option '--grup'; did you mean '--group'? See 'forewarn event list --help'.",
        ),
        ("-x", "no such option '-x'. See 'forewarn --help'."),
        (
            "event list --group",
            "option '--group' requires an argument. See 'forewarn event list --help'.",
        ),
        ("event list all", "unexpected argument 'all'. See 'forewarn event list --help'."),
        (
            "dev --clock slow",
            "invalid value for '--clock': 'slow' is not 'real' or 'virtual'."
            " See 'forewarn dev --help'.",
        ),
        (
            "group scale-in web",
            "pass either --count or --to. See 'forewarn group scale-in --help'.",
        ),
    ],
)
def test_wrong_usage_is_one_line_that_says_where_help_is(words: str, line: str) -> None:
    result = CliRunner().invoke(app, words.split(), env=WIDE, prog_name="forewarn")
    assert result.exit_code == 2
    assert result.stderr == f"forewarn: {line}\n"
    assert not result.stdout
