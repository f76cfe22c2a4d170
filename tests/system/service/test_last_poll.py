"""Who polled when is known after a service was killed, and after it was stopped."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from helpers.serve_process import ServeProcess, running_service, write_settings
from helpers.waiting import LIMIT, until


def polled(service: ServeProcess, machine: str = "web-0") -> dict[str, Any]:
    view = service.get(f"/v1/machines/{machine}")
    return {key: view[key] for key in ("last_poll", "polls", "api_version", "coverage")}


def test_the_last_poll_survives_kill_9_and_a_stop(tmp_path: Path) -> None:
    settings = write_settings(tmp_path)
    with running_service(tmp_path, settings) as service:
        service.poll()
        service.post("/v1/machines/web-0/restart")
        service.poll()  # it is shown its event, which is saved at once
        until(lambda: service.get("/v1/history?what=seen")["records"])
        before = polled(service)
        service.running.process.send_signal(signal.SIGKILL)
        service.running.process.wait(LIMIT)
    assert (before["polls"], before["api_version"]) == (2, "2020-07-01")
    with running_service(tmp_path, settings) as service:
        assert polled(service) == before
        assert polled(service, "web-1")["coverage"] == "never-polled"
        service.poll()
        last = polled(service)
        assert last["polls"] == 3
    with running_service(tmp_path, settings) as service:
        assert polled(service) == last
