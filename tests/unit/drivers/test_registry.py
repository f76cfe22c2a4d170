"""Drivers by name: those built in, and one that an installed package brings along."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forewarn.drivers import registry
from forewarn.drivers.port import DriverContext
from forewarn.drivers.registry import DriverConfig, DriverUnusable
from forewarn.drivers.simulated import SimulatedDriver
from helpers.forked_cli import run_script

PACKAGE = """
from typing import Annotated

import msgspec

from forewarn.drivers.port import Done, Driver, DriverContext, DriverOptions, NotYet, Ok
from forewarn.drivers.registry import DriverType


class RackOptions(DriverOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Annotated[str, msgspec.Meta(description="the rack's address", examples=["http://rack"])]
    slots: int = 4
    log: str = ""

    paths = ("log",)

    def problems(self):
        if self.slots < 1:
            yield "slots", "must be at least 1"


class RackDriver(Driver):
    repeatable = False

    def __init__(self, options: RackOptions, context: DriverContext) -> None:
        self.options = options

    async def check(self, task):
        return Ok()

    async def observe(self, task):
        return NotYet()

    async def perform(self, task):
        with open(self.options.log, "a") as log:
            log.write(f"{task.type.value} {task.machines[0].name} {self.options.url}\\n")
        return Done()

    def problem(self):
        return "on fire" if "fire" in self.options.url else ""

    def reload(self, options):
        self.options = options
        return True


DRIVER = DriverType(RackDriver, RackOptions)
NOT_A_DRIVER = RackDriver
"""
ENTRY_POINTS = """[forewarn.drivers]
rack = rack_driver:DRIVER
gone = rack_driver.gone:DRIVER
wrong = rack_driver:NOT_A_DRIVER
state = rack_driver:DRIVER
Not-A-Name = rack_driver:DRIVER
"""
SETTINGS = 'metadata = "127.0.0.1:0"\ncontrol = "127.0.0.1:0"\n'


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory that is like site-packages with one distribution in it."""
    site = tmp_path / "site"
    metadata = site / "rack_driver-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "rack_driver.py").write_text(PACKAGE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rack-driver\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return site


def run(site: Path, script: str) -> str:
    """What a process prints in which the distribution is installed."""
    prelude = f"import sys; sys.path.insert(0, {str(site)!r})\n"
    done = run_script(prelude + script, cwd=site.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(site: Path, text: str) -> str:
    """The problems of a settings file, a line each."""
    (site.parent / "serve.toml").write_text(SETTINGS + text)
    return run(
        site,
        """
from pathlib import Path
from forewarn.node.settings import SettingsError, load
try:
    print(load(Path("serve.toml"), {})[1].driver)
except SettingsError as error:
    print("\\n".join(error.problems))
""",
    )


def test_the_simulated_driver_is_the_default(tmp_path: Path) -> None:
    driver = registry.make(
        DriverConfig(), DriverContext(lambda suffix: tmp_path / f"state.db.{suffix}")
    )
    assert isinstance(driver, SimulatedDriver)
    asyncio.run(driver.aclose())
    assert (tmp_path / "state.db.impacts").exists()


CONTRACT = """
import json
from pathlib import Path

import pytest
from rack_driver import DRIVER, RackDriver, RackOptions

from forewarn.drivers.port import Done, DriverContext, Happened, NotYet, Ok, Veto
from forewarn.testing.drivers import DriverContract, DriverPlace


class Rack(RackDriver):
    \"\"\"Keeps what it has done in its log.\"\"\"

    opened = False

    async def open(self):
        self.opened = True

    async def check(self, task):
        return Ok() if task.machines else Veto("no machine")

    async def observe(self, task):
        return Happened() if self.is_done() else NotYet()

    async def perform(self, task):
        assert self.opened
        return Done() if self.is_done() else await super().perform(task)

    def is_done(self):
        return Path(self.options.log).exists()


class Forgetful(Rack):
    def is_done(self):
        return False


class Place(DriverPlace):
    def __init__(self, kind, log):
        self.kind, self.log = kind, log

    def driver(self):
        options = RackOptions(url="http://rack", log=str(self.log))
        return self.kind(options, DriverContext())

    def impacts(self):
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


class TestRack(DriverContract):
    @pytest.fixture
    def place(self, tmp_path):
        return Place(Rack, tmp_path / "log")


class TestForgetful(DriverContract):
    @pytest.fixture
    def place(self, tmp_path):
        return Place(Forgetful, tmp_path / "log")
"""


def test_the_contract_of_drivers_finds_what_is_wrong_with_one_elsewhere(installed: Path) -> None:
    (installed.parent / "test_rack.py").write_text(CONTRACT)
    printed = run(
        installed, "import pytest; pytest.main(['-q', '-rfE', '-p', 'no:cacheprovider', '.'])"
    )
    failed = {line.split(" ")[1] for line in printed.splitlines() if line.startswith("FAILED")}
    assert failed == {
        "test_rack.py::TestForgetful::test_a_driver_knows_after_a_crash_what_was_carried_out",
        "test_rack.py::TestForgetful::test_a_repeated_task_disturbs_nothing_a_second_time",
        "test_rack.py::TestForgetful::test_a_machine_moves_to_its_target_or_the_driver_says_where_it_is",
    }
    assert "9 passed" in printed


def test_an_unknown_driver_is_refused_with_those_there_are(installed: Path) -> None:
    with pytest.raises(DriverUnusable, match="command, hosts, simulated"):
        registry.load("libvirt")
    printed = check(installed, 'driver = "libvirt"')
    assert printed.startswith("serve.toml:3: driver = 'libvirt': ")
    assert all(name in printed for name in ("command", "gone", "rack", "simulated", "state"))
    assert "'rack'?" in check(installed, 'driver = "rak"')


def test_an_installed_driver_carries_an_event_out(installed: Path) -> None:
    text = 'driver = "rack"\n[rack]\nurl = "http://rack.example"\nlog = "rack.log"\n'
    (installed.parent / "serve.toml").write_text(SETTINGS + text)
    printed = run(
        installed,
        """
from pathlib import Path
from forewarn.drivers import registry
from forewarn.drivers.port import DriverContext
from forewarn.node.settings import load
from forewarn.testing import SAMPLE, Service
config = load(Path("serve.toml"), {})[1].driver
driver = registry.make(config, DriverContext())
with Service(SAMPLE, driver=driver) as service:
    service.document("web_0")
    event = service.schedule("Reboot", "web_0")
    service.document("web_0")
    service.approve("web_0", event)
    print(service.document("web_0")["Events"])
print(Path("rack.log").read_text(), end="")
""",
    )
    assert printed.splitlines() == ["[]", "Reboot web_0 http://rack.example"]


def test_the_service_makes_the_driver_that_its_settings_name(installed: Path) -> None:
    text = 'driver = "rack"\n[rack]\nurl = "http://fire"\n'
    (installed.parent / "serve.toml").write_text(SETTINGS + text)
    printed = run(
        installed,
        """
import asyncio
from pathlib import Path
from forewarn.node import Node
from forewarn.node.daemon.reload import Reloader
from forewarn.node.settings import load
path = Path("serve.toml")

async def main():
    loaded, config = load(path, {})
    async with Node(config) as node:
        print(type(node.driver).__name__, node.driver.problem())
        path.write_text(path.read_text().replace("fire", "rack") + "slots = 9\\n")
        report = await Reloader(loaded, lambda: load(path, {})).reload_node(node)
        print(sorted(report.reloaded), report.restart, node.driver.options.slots)

asyncio.run(main())
""",
    )
    assert [line for line in printed.splitlines() if not line.startswith("20")] == [
        "RackDriver on fire",
        "['rack.slots', 'rack.url'] () 9",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'driver = "rack"',
            "needs a table [rack] with the rack's address, for example url = \"htt",
        ),
        ('driver = "rack"\n[rack]\nslots = 2', "rack.url is missing: the rack's address, for exa"),
        ('driver = "rack"\n[rack]\nurl = ""\nslot = 2', "rack.slot: unknown key; did you mean 'sl"),
        ('driver = "rack"\n[rack]\nurl = 7', "rack.url: expected text, not"),
        ('driver = "rack"\n[rack]\nurl = ""\nslots = 0', ":6: rack.slots: must be at least 1"),
        ('[rack]\nurl = ""', '[rack] is only used with driver = "rack"; set that, or remove it'),
        ('driver = "gone"', "rack_driver.gone:DRIVER of rack-driver cannot be imported"),
        ('driver = "wrong"', "rack_driver:NOT_A_DRIVER of rack-driver is not a forewarn.drivers"),
        ('driver = "state"', "a driver cannot have the name of a setting (state)"),
        ('driver = "Not-A-Name"', "unknown driver"),
    ],
)
def test_options_that_cannot_be_used_are_named(installed: Path, text: str, problem: str) -> None:
    printed = check(installed, text)
    assert problem in printed
    assert printed.count("\n") == 1
