"""The fixture as pytest finds it: in a pytest of its own, unused, used, and by two at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helpers.waiting import LIMIT

pytest_plugins = ["pytester"]

NOTHING_ELSE = """
import sys
import pytest
before = set(sys.modules)
import forewarn.testing.plugin
print(*sorted(set(sys.modules) - before))
"""

STRICT = ("-p", "forewarn", "-p", "no:cacheprovider", "--strict-markers", "-W", "error")

UNUSED = """
import sys

def test_unused(request):
    assert request.config.pluginmanager.hasplugin("forewarn")
    ours = {name for name in sys.modules if name.partition(".")[0] == "forewarn"}
    assert ours == {"forewarn", "forewarn.testing", "forewarn.testing.plugin"}
"""

REWRITTEN = """
import sys

def test_rewritten(forewarn):
    import forewarn.testing.drivers
    from _pytest.assertion.rewrite import AssertionRewritingHook

    loaders = {n: m.__spec__.loader for n, m in sys.modules.items() if n.startswith("forewarn.")}
    rewritten = {n for n, loader in loaders.items() if isinstance(loader, AssertionRewritingHook)}
    assert len(loaders) > 100
    assert rewritten - {"forewarn.testing", "forewarn.testing.plugin"} == {
        "forewarn.testing.drivers"
    }
"""

USED = """
import asyncio
import os
import threading
from pathlib import Path

import pytest
from forewarn.testing import SAMPLE, RefusedError, Service

HERE = Path(__file__).parent


def meet():
    # Both workers are here at once, each with a service: each waits for the other.
    me = os.environ["PYTEST_XDIST_WORKER"]
    other = {"gw0": "gw1", "gw1": "gw0"}[me]
    (HERE / me).touch()
    pause = threading.Event()
    for _ in range(6_000):
        if (HERE / other).exists():
            return
        pause.wait(0.01)
    pytest.fail(f"{other} never came")


@pytest.mark.forewarn(sockets=True)
def test_at_once(forewarn):
    web = forewarn.scale_set("web", 2)
    event = web[0].restart()
    url = web[1].url
    meet()
    assert [e["EventId"] for e in web[1].document()["Events"]] == [event.id]
    assert web[1].url == url


@pytest.mark.forewarn(SAMPLE)
class TestMarked:
    def test_a_fleet(self, forewarn):
        assert forewarn["sql-0"].document()["Events"] == []

    @pytest.mark.forewarn(fleet=None)
    def test_the_nearest_marker_counts(self, forewarn):
        assert forewarn.machines == []


@pytest.mark.forewarn(strict=True)
def test_with_a_note(forewarn):
    web = forewarn.scale_set("web", 2)
    web[1].document()
    web[1].approve(web[0].restart())


@pytest.mark.forewarn(strict=True)
@pytest.mark.xfail
def test_expected_to_fail(forewarn):
    test_with_a_note(forewarn)
    raise AssertionError


@pytest.mark.anyio
async def test_async(forewarn):
    web = await forewarn.to_thread(forewarn.scale_set, "web", 1)
    async with forewarn.during(web[0].restart()) as event:
        assert event.status == "Started"


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def mine():
    with Service() as service:
        yield service


def test_that_fails(forewarn, mine):
    mine.machine("jumpbox").restart()
    web = forewarn.scale_set("web", 2)
    event = web[0].restart()
    web[1].document()
    web[1].document()
    web[1].approve(event)
    web[1].request("GET", "/metadata/scheduledevents")
    assert web[1].document()["Events"] == []


@pytest.mark.forewarn(socket=True)
def test_with_a_slip(forewarn):
    pass


@pytest.mark.forewarn("one", "two")
def test_with_two_fleets(forewarn):
    pass
"""


def test_the_plugin_brings_nothing_but_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTHING_ELSE], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["forewarn", "forewarn.testing", "forewarn.testing.plugin"]


@pytest.fixture
def alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Only the plug-ins that are named, by their entry points."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


def test_a_run_that_does_not_use_the_plugin_imports_nothing_of_it(alone: pytest.Pytester) -> None:
    alone.makepyfile(UNUSED)
    alone.runpytest_subprocess(*STRICT).assert_outcomes(passed=1)


def test_asserts_of_the_package_are_not_rewritten_but_for_the_contract_of_drivers(
    alone: pytest.Pytester,
) -> None:
    alone.makepyfile(REWRITTEN)
    alone.runpytest_subprocess(*STRICT, "-p", "anyio").assert_outcomes(passed=1)


def test_two_workers_have_services_of_their_own(alone: pytest.Pytester) -> None:
    alone.makepyfile(USED)
    result = alone.runpytest_subprocess(
        *(*STRICT, "-p", "xdist", "-p", "anyio", "--dist", "each", "--tx", "2*popen"), timeout=LIMIT
    )
    result.assert_outcomes(passed=10, failed=2, errors=6, xfailed=2)
    result.stdout.fnmatch_lines(
        [
            "*UsageError: forewarn(socket=…): expected one of fleet, sockets, real_time, *",
            "*UsageError: forewarn takes one positional argument, a fleet; pass the others by *",
        ],
    )
    story = result.stdout.str()
    begin = story.index("- forewarn: forewarn -")
    reported = story[begin : story.index("- forewarn: mine -", begin)]
    pytest.LineMatcher(reported.splitlines()).fnmatch_lines(
        [
            "+0 s          Reboot ???????? of web_0 is announced",
            "+0 s          web_1 is shown document 2: Reboot ???????? Scheduled",
            "+0 s          Reboot ???????? of web_0 is Started, as web_1 has approved it",
            "+0 s          web_1 has approved ????????",
            "+0 s          web_1: GET /metadata/scheduledevents → 400 {*Required metadata header*",
            "+0 s          web_1 is shown document 3: Reboot ???????? Started",
            "verdict: 1 thing wrong, 1 note (1 machine, 1 event)",
        ]
    )
    assert "jumpbox is announced" not in reported
    assert "jumpbox is announced" in story[begin:]
