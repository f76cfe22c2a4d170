"""pytest's side of the test kit: the fixture `forewarn`, its marker, and what a failed test tells.

pytest imports this at every start, whether a test uses it or not; so it imports nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from forewarn.testing import Service

MARKER = (
    "forewarn(fleet=None, *, sockets=False, …): how the service of the fixture `forewarn` is made;"
    " takes what forewarn.testing.Service takes"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def forewarn(request: pytest.FixtureRequest) -> Iterator[Service]:
    """The service, in process, without machines, on a virtual clock; or as the marker says."""
    from forewarn.testing import Service

    with Service(**_marked(request.node, Service)) as service:
        yield service


def _marked(item: Any, service: type[Service]) -> dict[str, Any]:
    """What markers say, the one nearest to the test before those of its class and module."""
    import inspect

    known = inspect.signature(service).parameters
    said: dict[str, Any] = {}
    for mark in item.iter_markers("forewarn"):
        if len(mark.args) > 1:
            raise pytest.UsageError("forewarn takes one argument, a fleet; all else by name")
        given = {**dict(zip(("fleet",), mark.args, strict=False)), **mark.kwargs}
        for name, value in given.items():
            if name not in known:
                names = ", ".join(known)
                raise pytest.UsageError(f"forewarn({name}=…): there are {names}")
            said.setdefault(name, value)
    return said


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    kit = sys.modules.get("forewarn.testing.kit.service")
    if kit is not None and report.failed and call.when == "call":
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, kit.Service):
                report.sections.append((f"forewarn: {name}", _story(value)))
    return report


def _story(service: Service) -> str:
    """What happened, and what is wrong with what the clients did."""
    try:
        return service.story()
    except Exception as error:  # the test has failed already, and for another reason
        return f"nothing can be told: {error!r}"
