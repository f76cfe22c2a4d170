"""The pytest plugin: the fixture `forewarn`, its marker, and a section in a failed test's report.

pytest imports this at every start, whether a test uses it or not, so it imports only pytest.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from forewarn.testing import Service

MARKER = (
    "forewarn(fleet=None, *, sockets=False, …): how to make the service of the fixture `forewarn`;"
    " takes the arguments of forewarn.testing.Service; with strict=True, its verdict is checked at"
    " the end of the test, and notes count"
)
STRICT = "strict"  # the argument that is not one of Service
ENDED_EARLY = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Have this package imported like any other: rewriting its asserts as those of tests takes
    longer than the import, and only the ones in the contract of drivers are for users."""
    getattr(early_config.pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("forewarn")
    pytest.register_assert_rewrite("forewarn.testing.drivers")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def forewarn(request: pytest.FixtureRequest) -> Iterator[Service]:
    """A service in this process, without machines, on a virtual clock; or as the marker says."""
    from forewarn.support import extras

    if not extras.installed("test"):  # as in the base install
        pytest.fail(extras.missing("test", "the fixture 'forewarn'"), pytrace=False)
    from forewarn.testing import Service

    arguments = _marker_arguments(request.node, Service)
    strict = arguments.pop(STRICT, False)
    with Service(**arguments) as service:
        yield service
        if strict and not request.node.stash.get(ENDED_EARLY, False):
            service.verdict().check(strict=True)


def _marker_arguments(item: Any, service: type[Service]) -> dict[str, Any]:
    """Merge the arguments of all markers; those nearest to the test win."""
    import inspect

    known = [*inspect.signature(service).parameters, STRICT]
    arguments: dict[str, Any] = {}
    for mark in item.iter_markers("forewarn"):
        if len(mark.args) > 1:
            raise pytest.UsageError(
                "forewarn takes one positional argument, a fleet; pass the others by keyword"
            )
        given = {**dict(zip(("fleet",), mark.args, strict=False)), **mark.kwargs}
        for name, value in given.items():
            if name not in known:
                names = ", ".join(known)
                raise pytest.UsageError(f"forewarn({name}=…): expected one of {names}")
            arguments.setdefault(name, value)
    return arguments


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    kit = sys.modules.get("forewarn.testing.kit.service")
    if call.excinfo is not None:  # failed, skipped, or expected to fail
        item.stash[ENDED_EARLY] = True
    if kit is not None and report.failed and call.when == "call":
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, kit.Service):
                report.sections.append((f"forewarn: {name}", _report(value)))
    return report


def _report(service: Service) -> str:
    try:
        return service.report()
    except Exception as error:  # the test has failed already, and for another reason
        return f"no report: {error!r}"
