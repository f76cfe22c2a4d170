"""docs/applications/client.md: every snippet runs, every public name and every limit is there."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from types import ModuleType
from typing import Any

import msgspec
import pytest

from forewarn import client
from forewarn.client import document, endpoint_state, exchange, pace, rules
from forewarn.testing import Service
from helpers.paths import ROOT

PAGE = ROOT / "docs" / "applications" / "client.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_runs(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Service() as service:
        machine = service.scale_set("web", 1)[0]
        monkeypatch.setenv("FOREWARN_METADATA", machine.url)
        event = machine.restart()
        names: dict[str, Any] = {"__name__": "snippet"}
        exec(compile(SNIPPETS[number], f"snippet {number} of {PAGE.name}", "exec"), names)
        main = names.get("main")
        if main is not None:
            run = (lambda: asyncio.run(main())) if inspect.iscoroutinefunction(main) else main
            running = threading.Thread(target=run, daemon=True)
            running.start()
            while event.status == "Scheduled":
                running.join(0.01)  # it has not approved it yet
            assert event.approved_by == "web_0"
            event.finish()
            running.join(30)
            assert not running.is_alive()
            service.verdict().check()
    capsys.readouterr()


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) == 4


@pytest.mark.parametrize("name", client.__all__)
def test_every_public_name_is_described(name: str) -> None:
    assert f"`{name}" in PAGE.read_text()


@pytest.mark.parametrize(
    "kind", [client.Event, client.Change, client.Snapshot, client.Identity, client.EndpointStatus]
)
def test_whatever_a_value_holds_is_described(kind: type[msgspec.Struct]) -> None:
    (row,) = re.findall(rf"^\| `{kind.__name__}` \|.*$", PAGE.read_text(), re.MULTILINE)
    public = [name for name in vars(kind) if not name.startswith("_")]
    assert [name for name in public if not re.search(rf"`{name}\b", row)] == []


@pytest.mark.parametrize("kind", [client.Client, client.AsyncClient])
def test_whatever_a_client_can_be_asked_is_described(kind: type) -> None:
    text = PAGE.read_text()
    asked = [name for name in vars(kind) if not name.startswith("_")]
    assert [name for name in asked if not re.search(rf"^\| `{name}\b", text, re.MULTILINE)] == []


def test_both_clients_can_be_asked_the_same() -> None:
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


@pytest.mark.parametrize(
    ("name", "value"), _limits(pace, exchange, endpoint_state, document, rules)
)
def test_every_limit_is_described(name: str, value: float) -> None:
    said = str(value) if isinstance(value, int) else f"{value:g}"
    assert re.search(
        rf"^\| `{name}` \| {re.escape(said)} \| .+ \|$", PAGE.read_text(), re.MULTILINE
    )
