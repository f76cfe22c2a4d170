from __future__ import annotations

import re
import tomllib

import pytest

from forewarn.support import extras
from helpers.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULE_OF = {"pyyaml": "yaml"}
# uvloop and tzdata are not for every system; the others have messages of their own where they are
# used.
NOT_CHECKED = {"uvloop", "tzdata", "time-machine", "pyjwt"}
OF_THE_KIT = {"time-machine", "tzdata"}  # what the service needs brings time zones along


def requirements(extra: str) -> dict[str, str]:
    listed = PROJECT["optional-dependencies"][extra]
    return {re.split(r"[<>=!;\[ ]", need)[0].lower(): need for need in listed}


@pytest.mark.parametrize("extra", extras.MODULES)
def test_an_extra_is_known_by_all_that_it_installs(extra: extras.Extra) -> None:
    names = set(requirements(extra)) - NOT_CHECKED
    assert set(extras.MODULES[extra]) == {MODULE_OF.get(name, name) for name in names}
    assert extras.installed(extra)
    extras.need(extra, "this test")


def test_shared_requirements_of_service_and_kit_are_the_same() -> None:
    server, kit = requirements("server"), requirements("test")
    shared = kit.keys() - OF_THE_KIT
    assert {name: server.get(name) for name in shared} == {name: kit[name] for name in shared}


def test_what_is_missing_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(extras.MODULES, "server", ("forewarn", "no_such_module"))
    assert not extras.installed("server")
    with pytest.raises(ImportError) as caught:
        extras.need("server", "the control API")
    assert str(caught.value) == (
        "the control API needs the server packages: pip install 'forewarn[server]'"
    )
