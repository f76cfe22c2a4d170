"""For all tests: a known environment, nothing is logged to the terminal, commands are made once,
what takes longest goes first, and hypothesis keeps its own time."""

from __future__ import annotations

import helpers.known_environment  # noqa: F401 - it is so from here on

# isort: split
import functools
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from typing import Any, NoReturn

import pytest
import structlog
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

from helpers.examples import CHECK, PROFILE, examples
from helpers.paths import TESTS


def _drop(_logger: object, _method: str, _event: Any) -> NoReturn:
    raise structlog.DropEvent


structlog.configure(processors=[_drop])

# To type a command takes a tenth of the time that it takes to read them all off the source again.
typer.testing._get_command = functools.cache(  # type: ignore[attr-defined]
    typer.main.get_command
)


@pytest.fixture(autouse=True)
def _no_log_is_left_to_the_next_test() -> Iterator[None]:
    """A command that is run in this process sets up a log of its own."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def next_version(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one of the next version of forewarn, which has newer schemas."""
    from helpers import next_version

    next_version.install(monkeypatch.setattr, tmp_path_factory.mktemp("migrations"))


# What only a real API server can show: `make test-kubernetes`.
collect_ignore = (
    []
    if os.environ.get("TEST_KUBE_APISERVER")
    else ["system/deploy/test_kubernetes_image.py", "system/hooks/test_kubernetes_kubectl.py"]
)

# Begun first, so that nobody waits for them in the end: what takes longest beside other tests.
LONGEST = (
    "system/packaging/test_release.py",
    "system/node/test_event_grid.py",
    "system/store/test_patroni.py",
    "system/deploy/test_deb.py",
    "system/deploy/test_agent_packages.py",
    "system/deploy/test_container.py",
    "browser/test_verbs.py",
    "browser/test_accessibility.py",
    "system/docs/test_example_clients.py",
    "system/agent/test_handling_events.py",
    "system/twins/test_scenarios.py",
    "system/twins/test_kit.py",
    "system/arm/test_az.py",
    "system/arm/test_sdks.py",
    "system/node/test_enrollment.py",
    "system/hooks/test_kubernetes_killed.py",
    "system/node/test_killed_operations.py",
    "system/docs/test_site.py",
    "system/control/test_schemathesis.py",
    "simulation/test_host_nodes.py",
    "differential/test_cases.py",
    "unit/core/deciding/test_decide.py",
    "simulation/test_broken_services.py",
    "unit/metadata/publishing/test_host_nodes_limits.py",
    "ports/test_leadership.py",
    "system/hooks/test_kubernetes.py",
    "browser/test_live.py",
    "unit/core/windows/test_openings.py",
    "system/docs/test_tutorial.py",
    "system/service/test_failing_disk.py",
    "system/packaging/test_extras.py",
    "simulation/test_reach.py",
    "simulation/test_clients_on_moved_clocks.py",
    "system/tools/test_run_tests.py",
    "system/docs/test_howto_languages.py",
    "unit/metadata/publishing/test_host_nodes.py",
    "system/guest_network/test_hosts.py",
    "system/clients/test_published_clients.py",
    "browser/test_portal.py",
    "system/agent/test_killed_agent.py",
    "ports/test_store.py",
    "simulation/test_broken_host_nodes.py",
    "lab/test_lab.py",
    "system/docs/test_example_web.py",
    "system/service/test_full_disk.py",
    "simulation/test_cut_recordings.py",
    "system/arm/test_chaostoolkit.py",
    "simulation/test_simulation.py",
    "system/cli/test_scenario.py",
    "differential/test_broken_fronts.py",
    "system/store/test_pooler.py",
    "system/node/test_front.py",
    "system/guest_network/test_service.py",
    "simulation/test_honest_services.py",
    "system/docs/test_arm_page.py",
    "system/store/test_durability.py",
    "system/node/test_socket_activation.py",
    "system/store/test_rolling_upgrade.py",
    "browser/test_hostile.py",
    "system/store/test_database_backup.py",
    "unit/metadata/publishing/test_host_nodes_went_back.py",
    "simulation/test_control_nodes.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


# Thousands of tests are here to stay: not to be looked through while more are collected, nor
# whenever one leaves garbage; and that is looked for less often than Python does by itself.
gc.disable()
GARBAGE = (20_000, 20, 20)  # objects, then collections of the younger generation


def pytest_collection_finish() -> None:
    gc.freeze()  # whatever is garbage of it by now as well: to find that takes longer
    gc.set_threshold(*GARBAGE)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Remove what a failed test has left open, of which its error has everything to say.

    Otherwise it is found while another test runs, which would be blamed for it."""
    failed_before = item.session.testsfailed
    result = yield
    if item.session.testsfailed > failed_before:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                delattr(sys, name)
        complain, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            gc.collect()
        finally:
            sys.unraisablehook = complain
    return result


@pytest.fixture(autouse=True)
def _an_interrupt_interrupts() -> Iterator[None]:
    """The processes of a run ignore it, as would whatever they start; and what a test leaves
    blocked would be blocked in whatever later tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if hasattr(signal, "pthread_sigmask"):
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        assert not blocked


settings.register_profile("forewarn", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("forewarn"), derandomize=True)
settings.register_profile(CHECK, settings.get_profile("forewarn"), max_examples=examples(100))
settings.load_profile(
    os.environ.get(PROFILE) or ("ci" if os.environ.get("CI") == "true" else "forewarn")
)
