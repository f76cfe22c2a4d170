"""SIGHUP to a real process: what is taken over, and that a wrong file changes nothing.

What a reload of settings brings about is in tests/unit/node/daemon/test_reload.py.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.notify_socket import NotifySocket
from helpers.serve_process import FLEET, ServeProcess, running_service, write_settings


class Watched:
    """A service whose manager hears when it has reloaded."""

    def __init__(self, service: ServeProcess, manager: NotifySocket, settings: Path) -> None:
        self.service = service
        self.settings = settings
        self._manager = manager
        manager.until("READY")

    def reload(self, text: str = "") -> None:
        if text:
            self.settings.write_text(text)
        self.service.running.process.send_signal(signal.SIGHUP)
        self._manager.until("RELOADING")
        self._manager.until("READY")

    def stopped(self) -> list[dict[str, Any]]:
        """All that it logged in its life."""
        assert self.service.running.stop() == 0
        return [json.loads(line) for line in self.service.running.stderr if line.startswith("{")]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    settings = write_settings(tmp_path, 'log_level = "debug"\n')
    address = f"@forewarn-reload-{os.getpid()}"
    with (
        NotifySocket(address) as manager,
        running_service(tmp_path, settings, env={"NOTIFY_SOCKET": address}) as service,
    ):
        yield Watched(service, manager, settings)


def having(log: list[dict[str, Any]], field: str) -> list[dict[str, Any]]:
    return [line for line in log if field in line]


def test_a_reload_applies_what_it_can_and_logs_what_needs_a_restart(watched: Watched) -> None:
    service = watched.service
    assert service.poll()["Events"] == []
    text = watched.settings.read_text()
    watched.reload(text + 'throttle = 1\nhistory = "7d"\nfront = false\n')
    with pytest.raises(urllib.error.HTTPError, match="429"):
        [service.poll() for _ in range(20)]
    fleet = FLEET + "      - {name: web-2, update_domain: 2, addresses: [127.0.0.3]}\n"
    watched.settings.with_name("fleet.yaml").write_text(fleet)
    watched.reload()
    names = {one["name"] for one in service.get("/v1/machines")}
    assert names == {"web-0", "web-1", "web-2"}
    watched.reload(text)
    for _ in range(20):
        service.poll()
    log = watched.stopped()
    first, second, third = having(log, "reloaded")
    assert set(first["reloaded"]) == {"throttle", "history", "fleet"}
    assert second["reloaded"] == ["fleet"]
    assert set(third["reloaded"]) == {"throttle", "history", "fleet"}
    assert [line["keys"] for line in having(log, "keys")] == [["front"], ["front"]]
    reports = [line for line in log if "keys" in line or "reloaded" in line]
    assert reports[-1] == third  # the old settings again: nothing needs a restart any more


def test_a_wrong_file_changes_nothing_and_is_one_line(watched: Watched) -> None:
    text = watched.settings.read_text()
    watched.reload(text + 'throttle = 1\nhistroy = "1d"\nkeep_alive = "soon"\n')
    watched.reload("this is not TOML")
    watched.settings.unlink()
    watched.reload()
    for _ in range(20):
        watched.service.poll()
    log = watched.stopped()
    first, second, third = having(log, "problems")
    assert len(first["problems"]) == 2
    assert first["problems"][0].endswith("'history'?")
    assert len(second["problems"]) == len(third["problems"]) == 1
    assert having(log, "reloaded") == []
    assert {line["level"] for line in (first, second, third)} == {"error"}


def test_another_level_of_the_log_holds_at_once(watched: Watched) -> None:
    text = watched.settings.read_text()
    watched.reload(text.replace('log_level = "debug"', 'log_level = "error"'))
    watched.reload(text + "front = false\n")
    log = watched.stopped()
    # At the level of errors neither what was taken over nor what needs a restart is told.
    assert [line["level"] for line in having(log, "reloaded")] == ["info"]
