"""A service that is stopped, killed and started again on its port, and both clients outlast it."""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.client import Change, pace
from forewarn.testing import Service
from helpers.client_variants import FACES, ClientVariant, CuttingProxy
from helpers.serve_process import running_service, write_settings
from helpers.waiting import LIMIT


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INTERVAL", "BACK_OFF_MOST"):
        monkeypatch.setattr(pace, name, 0.05)


class Watching:
    """One client that watches in a thread of its own, and what it has told."""

    def __init__(self, face: ClientVariant) -> None:
        self.face = face
        self._reported: queue.SimpleQueue[Change] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        with contextlib.suppress(StopIteration, StopAsyncIteration):
            for _ in range(3):
                self._reported.put(self.face.next())

    def next(self) -> tuple[str, str]:
        change = self._reported.get(timeout=LIMIT)
        return str(change.kind), change.event.type

    def none(self) -> bool:
        return self._reported.empty()

    def close(self) -> None:
        self._thread.join(LIMIT)
        if not self._thread.is_alive():  # else the test has failed, and says why
            self.face.close()


@contextlib.contextmanager
def watching(url: str) -> Iterator[list[Watching]]:
    both = [Watching(face(url)) for face in FACES.values()]
    try:
        yield both
    finally:
        for one in both:
            one.close()


@pytest.mark.parametrize("kind", list(FACES))
def test_a_client_gets_no_event_twice_after_a_restart_of_the_service(
    tmp_path: Path, kind: str
) -> None:
    def target(service: Service) -> tuple[str, int]:
        host, _, port = service["web_0"].url.removeprefix("http://").partition(":")
        return host, int(port)

    state = tmp_path / "forewarn.db"
    with CuttingProxy() as between:
        face = FACES[kind](between.url)
        with Service(state=state) as service:
            event = service.scale_set("web", 2)[0].restart()
            between.target = target(service)
            assert face.next().kind == "appeared"
        between.target = None
        between.cut()
        with Service(state=state) as service:
            between.target = target(service)
            assert [one.id for one in face.events()] == [event.id]
            service.approve("web_0", event.id)
            assert face.next().kind == "started"
            service.clock.advance("20m")
            assert face.next().kind == "finished"
        face.close()


def test_a_service_that_is_killed_comes_back_on_its_port(tmp_path: Path) -> None:
    settings = write_settings(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    output = settings.read_text().replace(
        'metadata = "127.0.0.1:0"', f'metadata = "127.0.0.1:{port}"'
    )
    settings.write_text(output)
    with watching(f"http://127.0.0.1:{port}") as both:  # nobody is there yet
        with running_service(tmp_path, settings) as service:
            service.poll()  # its group listens from now on
            raised = service.post("/v1/machines/web-0/restart")
            for one in both:
                assert one.next() == ("appeared", "Reboot")
            service.running.process.send_signal(signal.SIGKILL)
            service.running.process.wait(LIMIT)
        with running_service(tmp_path, settings) as service:
            id = raised["id"]
            both[0].face.approve(id)
            for one in both:
                assert one.next() == ("started", "Reboot")
            service.post(f"/v1/events/{id}/finish", {"reason": "seen"})
            for one in both:
                assert one.next() == ("finished", "Reboot")
                assert one.none()
                assert one.face.status.problem == ""
