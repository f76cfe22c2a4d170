"""docs/applications/client.md: every public name and every limit is there, and snippets run."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import msgspec
import pytest

from forewarn import client
from forewarn.client import document, endpoint_state, exchange, pace, rules
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


@pytest.mark.parametrize("name", client.__all__)
def test_every_public_name_is_described(name: str) -> None:
    assert f"`{name}" in PAGE.read_text()


@pytest.mark.parametrize(
    "kind", [client.Event, client.Change, client.Snapshot, client.Identity, client.EndpointStatus]
)
def test_every_field_is_described(kind: type[msgspec.Struct]) -> None:
    (row,) = re.findall(rf"^\| `{kind.__name__}` \|.*$", PAGE.read_text(), re.MULTILINE)
    public = [name for name in vars(kind) if not name.startswith("_")]
    assert [name for name in public if not re.search(rf"`{name}\b", row)] == []


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


def _limits(*modules: ModuleType) -> list[tuple[str, float]]:
    return [
        (name, value)
        for module in modules
        for name, value in vars(module).items()
        if name.isupper()
        and isinstance(value, int | float)
        and (module is pace or (name.startswith("MAX_") and name != "MAX_QUOTED"))
    ]


LIMITS = {  # what the page says that each constant limits, and the constant's unit there
    "INTERVAL": ("Default `interval` between two polls", 1, " s"),
    "MAX_INTERVAL": (
        "Longest `interval`; a client that polls more rarely could miss a Preempt",
        1,
        " s",
    ),
    "LEAST_REST": (
        "Shortest `interval`, and shortest time between two requests even if the next document is"
        " wanted at once",
        1,
        " s",
    ),
    "JITTER": ("Random variation of the interval, in both directions", 0.01, " %"),
    "BACK_OFF_MOST": ("Longest time between two attempts after a failure", 1, " s"),
    "RETRY_AFTER_MOST": ("Longest `Retry-After` that is honoured", 1, " s"),
    "CONNECT": (
        "Time to establish a connection; for each address, if a name has several",
        1,
        " s",
    ),
    "ANSWER": ("Time for an answer", 1, " s"),
    "ANSWER_LEAST": ("Minimum time for an answer, even if less of the timeout is left", 1, " s"),
    "STALL": ("Time for the rest of an answer that has begun", 1, " s"),
    "LEAST": ("Shortest timeout of any operation on a socket", 1, " s"),
    "FIRST_ANSWER": ("Time for the first answer", 1, " s"),
    "TIMEOUT": ("Default `timeout` of a call", 1, " s"),
    "ABSENT": (
        "Time after which a call fails if nothing listens or the service does not know this"
        " machine",
        1,
        " s",
    ),
    "WAIT": ("Time for which the service is asked to hold a long-poll", 1, " s"),
    "WAIT_LATE": ("Further time after which a long-poll is considered lost", 1, " s"),
    "TRANSIT": (
        "Longest transit time of the answer to a long-poll when its `Date` is compared with the"
        " local clock",
        1,
        " s",
    ),
    "WAIT_LEAST": ("Shortest long-poll; a plain poll is sent instead of a shorter one", 1, " s"),
    "WAIT_TRIES": (
        "Long-polls that fail in a row, while polls succeed, before only polls are used",
        1,
        "",
    ),
    "WAIT_AGAIN": ("Time until long-polls are tried again", 1, " s"),
    "NEWEST_AGAIN": ("Time until the newest version is tried again", 1, " s"),
    "DOUBT": ("Refusals in a row before a version that has worked is given up", 1, ""),
    "LOST": ("Time without an answer before the endpoint is looked for again", 1, " s"),
    "MAX_HEAD": ("Size of the head of an answer", 1024, " KiB"),
    "MAX_ANSWER": (
        "Size of the body of an answer; of everything that is received, including the framing,"
        " twice as much",
        1024**2,
        " MiB",
    ),
    "MAX_DURATION": (
        "Longest impact; the duration of an event that claims more is unknown",
        1,
        " s",
    ),
    "MAX_ETAG": ("Length of an ETag that is sent back", 1, " characters"),
    "MAX_NOTE": ("Length of the note of a readiness report", 1, " characters"),
}


@pytest.mark.parametrize(
    ("name", "value"), _limits(pace, exchange, endpoint_state, document, rules)
)
def test_every_limit_is_described(name: str, value: float) -> None:
    described, scale, unit = LIMITS[name]
    assert f"| {described} | {value / scale:,.10g}{unit} |" in PAGE.read_text()


@pytest.mark.parametrize("kind", [client.Client, client.AsyncClient])
def test_docstrings_name_the_defaults(kind: type[client.Client]) -> None:
    for call in (kind.events, kind.approve, kind.identity, kind.report_ready, kind.readiness):
        assert f"default is {pace.TIMEOUT:g} seconds;" in " ".join((call.__doc__ or "").split())
    assert "one second" in " ".join((kind.__doc__ or "").split())
    assert pace.INTERVAL == 1
