"""docs/applications/client.md: every method is there, limits are true, and snippets run."""

from __future__ import annotations

import inspect
import re

import pytest

from forewarn import client
from forewarn.client import pace, rules
from helpers.paths import ROOT

PAGE = ROOT / "docs" / "applications" / "client.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("snippet", [text for text in SNIPPETS if "Client(" not in text])
def test_a_snippet_without_a_client_runs(snippet: str) -> None:
    exec(compile(snippet, PAGE.name, "exec"), {"__name__": "snippet"})


def test_every_snippet_with_a_client_is_one_that_watches() -> None:
    """Those are run under every scenario, in tests/system/docs/test_example_clients.py."""
    clients = [text for text in SNIPPETS if "Client(" in text]
    assert len(SNIPPETS) == 6
    assert [text for text in clients if ".watch(" in text] == clients
    assert len(clients) == 5


@pytest.mark.parametrize("kind", [client.Client, client.AsyncClient])
def test_every_method_is_described(kind: type) -> None:
    text = PAGE.read_text()
    asked = [name for name in vars(kind) if not name.startswith("_")]
    assert [name for name in asked if not re.search(rf"^\| `{name}\b", text, re.MULTILINE)] == []


def test_both_clients_have_the_same_methods() -> None:
    def asked(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(thing).parameters)
            for name, thing in vars(kind).items()
            if inspect.isfunction(thing) and (not name.startswith("_") or name == "__init__")
        }

    assert asked(client.Client) == asked(client.AsyncClient)


LIMITS = {
    "Default `interval` between two polls": f"{pace.INTERVAL:g} s",
    "Longest `interval`; a client that polls more rarely could miss a Preempt": (
        f"{pace.MAX_INTERVAL:g} s"
    ),
    "Longest time between two attempts after a failure": f"{pace.BACK_OFF_MOST:g} s",
    "Time for an answer": f"{pace.ANSWER:g} s",
    "Time for the first answer": f"{pace.FIRST_ANSWER:g} s",
    "Default `timeout` of a call": f"{pace.TIMEOUT:g} s",
    "Time after which a call fails if nothing listens or the service does not know this machine": (
        f"{pace.ABSENT:g} s"
    ),
    "Time without an answer before the endpoint is looked for again": f"{pace.LOST:g} s",
    "Length of the note of a readiness report": f"{rules.MAX_NOTE:,} characters",
}


def test_the_limits_are_those_of_the_code() -> None:
    text = PAGE.read_text().partition("\n## Limits\n")[2].partition("\n## ")[0]
    assert dict(re.findall(r"^\| (.+?) \| ([0-9].*?) \|$", text, re.MULTILINE)) == LIMITS


@pytest.mark.parametrize("kind", [client.Client, client.AsyncClient])
def test_docstrings_name_the_defaults(kind: type[client.Client]) -> None:
    for call in (kind.events, kind.approve, kind.identity, kind.report_ready, kind.readiness):
        assert f"default is {pace.TIMEOUT:g} seconds;" in " ".join((call.__doc__ or "").split())
    assert "one second" in " ".join((kind.__doc__ or "").split())
    assert pace.INTERVAL == 1
