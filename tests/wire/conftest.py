"""The endpoint that is held to the wire contract: a service of ours, or any other (`--endpoint`).

A test that takes `endpoint`, most of them by way of `guest`, needs nothing but an address and
changes nothing there: it can be run against whatever answers. All others schedule events, move the
clock or choose settings, and run against a service of ours only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from forewarn.testing import Service
from helpers.endpoint import Caller, Groups, Guest, RemoteCaller, fleet_of
from helpers.raw_http import Place

LEFT_OUT = pytest.StashKey[list[pytest.Item]]()
NEED_CONTROL = {"service", "groups"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--endpoint",
        metavar="http://HOST:PORT",
        help="run the tests that need nothing but an endpoint against this one",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a wrong address before anything is collected."""
    if (url := config.getoption("--endpoint", None)) is not None:
        place_of(url)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--endpoint", None) is None:
        return
    left_out = [item for item in items if _needs_control(item)]
    config.stash[LEFT_OUT] = left_out
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def _needs_control(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    marked = item.get_closest_marker("platform") is not None
    return marked or "endpoint" not in fixtures or bool(fixtures & NEED_CONTROL)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    config = terminalreporter.config
    if (left_out := config.stash.get(LEFT_OUT, None)) is None:
        return
    terminalreporter.section("left out: these tests need control over the platform")
    terminalreporter.line(
        "They schedule events, move the clock, choose the fleet or change settings, and therefore"
        " run only against a service that the tests start themselves (make test)."
    )
    cases = Counter(item.nodeid.partition("[")[0] for item in left_out)
    for name, count in cases.items():
        terminalreporter.line(f"  {name}" + (f" ({count} cases)" if count > 1 else ""))


def place_of(url: str) -> Place:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None or parts.path.strip("/") or parts.query:
        raise pytest.UsageError(f"--endpoint {url!r}: expected http://HOST or http://HOST:PORT")
    return parts.hostname, parts.port or 80


@pytest.fixture(scope="session")
def endpoint(pytestconfig: pytest.Config) -> Place | None:
    """Where an endpoint is that the tests have no control over, if that is what is tested."""
    url = pytestconfig.getoption("--endpoint", None)
    return None if url is None else place_of(url)


@pytest.fixture(scope="module")
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """A service with as many groups as the module says (`COUNT`)."""
    with Service(fleet_of(request.module.COUNT), sockets=True, front=True) as service:
        yield service


@pytest.fixture(scope="module")
def groups(request: pytest.FixtureRequest, service: Service) -> Groups:
    return Groups(service, request.module.COUNT)


@pytest.fixture(scope="module")
def guest(request: pytest.FixtureRequest, endpoint: Place | None) -> Caller:
    """For tests that change nothing: this machine at a foreign endpoint, or the machine of our
    service that the module names (`GUEST`), or else one of a group that is enabled and has no
    events."""
    if endpoint is not None:
        return RemoteCaller(endpoint)
    if name := getattr(request.module, "GUEST", None):
        return Guest(request.getfixturevalue("service"), name)
    groups: Groups = request.getfixturevalue("groups")
    return groups.enabled()[0]
