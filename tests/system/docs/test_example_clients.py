"""Every client that our pages and examples show passes the shipped scenarios, as a process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from forewarn.testing import run_scenario, scenarios
from forewarn.testing.scenarios import Result
from forewarn.testing.scenarios.engine.program import ProgramRunner
from helpers.example_clients import example_clients, missing_names, program, snippets
from helpers.forked_programs import fork_programs
from helpers.languages import LANGUAGES, are_here
from helpers.netns import require
from helpers.waiting import LIMIT

LONGEST = "bad-days"  # a client that backs off takes more than a minute for it
AT_ONCE = 6  # other runs; they mostly wait


def play(name: str, argv: Sequence[str], output: list[str], *, impact: bool = False) -> Result:
    scenario = scenarios.find(name)

    def show(machine: str, line: str) -> None:
        output.append(f"{machine}: {line}")

    runner = ProgramRunner(argv, scenario.under_test, show=show, impact=impact)
    return run_scenario(scenario, program=runner, timeout=LIMIT, first_poll_timeout=LIMIT)


def test_every_client_that_is_shown_passes_the_scenarios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, because nearly all of the time they wait. README's client is also stopped and
    restarted as its machine is. It and those in other languages run every scenario; the others are
    variants of it on the same library, and each runs every fourth one."""
    fork_programs(monkeypatch)
    clients = example_clients(tmp_path)
    assert len(clients) >= 8
    assert clients[0].name.startswith("README.md:")
    runs: dict[tuple[str, str], tuple[Future[Result], list[str]]] = {}
    others = [name for name in scenarios.names() if name != LONGEST]
    with ThreadPoolExecutor(len(clients)) as first, ThreadPoolExecutor(AT_ONCE) as rest:
        for pool, names in ((first, [LONGEST]), (rest, others)):
            for number, name in enumerate(names):
                for place, client in enumerate(clients):
                    is_variant = place > 0 and not client.name.startswith("examples/clients")
                    if is_variant and (place + number) % 4:
                        continue
                    output: list[str] = []
                    impact = client is clients[0]
                    future = pool.submit(play, name, client.argv, output, impact=impact)
                    runs[client.name, name] = future, output
    failed = []
    for (client_name, name), (future, output) in runs.items():
        if not (result := future.result()).ok:
            failed.append("\n".join([f"{client_name} fails {name}:", str(result), *output[-20:]]))
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_client_in_another_language_is_among_them(language: str) -> None:
    require(are_here(language), LANGUAGES[language].needs)


def test_a_page_leaves_only_named_functions_to_the_reader() -> None:
    places = [place.partition(":")[0] for place, _ in snippets()]
    assert places.count("docs/applications/client.md") == 5
    assert places.count("README.md") == 1
    for _, text in snippets():
        program(text)
    source = "import a.b\nwith C() as c:\n    c.d(e, *f)\n"
    assert missing_names(source) == {"C", "e", "f"}
    with pytest.raises(AssertionError, match="does not define"):
        program("prepare_fro(1)")


WATCHES_ALL = """
from forewarn.client import Client

with Client() as client:
    for change in client.watch({which}):
        if change.kind == "appeared":
            client.approve(change.event)
"""


@pytest.mark.parametrize(
    ("scenario", "which", "fails"),
    [
        ("live-migration", "mine=True", "migration is never "),
        ("user-redeploy", "min_freeze=10", "neighbour is never "),
    ],
)
def test_a_client_without_one_of_the_two_filters_fails(
    scenario: str, which: str, fails: str
) -> None:
    """One that is really started."""
    source = WATCHES_ALL.format(which=which)
    result = play(scenario, [sys.executable, "-c", source], [])
    assert any(one.expected.startswith(fails) for one in result.expectations if not one.ok)
