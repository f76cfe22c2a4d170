"""Event Grid and the real process: it is killed between a commit and its delivery, again and again;
and Azure's own library reads what is sent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from helpers.azure_tools import AZURE, PYTHON
from helpers.event_grid_receiver import EventGridReceiver
from helpers.netns import require
from helpers.serve_process import ServeProcess, running_service, write_settings
from helpers.waiting import LIMIT, until

KILLS = int(os.environ.get("KILLS", "16"))
TABLE = """
[[notify]]
name = "plane"
event-grid = {{ url = "{url}", schema = "{schema}" }}
"""
FLEET = """\
groups:
  - name: web
    kind: availability-set
    policy: {event_grid: true}
    machines: [{name: web-0}, {name: web-1, update_domain: 1}]
"""
# Reads an event as published programs do, in the environment that has Azure's libraries.
READER = {
    "EventGridSchema": "from azure.eventgrid import EventGridEvent as Event",
    "CloudEventSchemaV1_0": "from azure.core.messaging import CloudEvent as Event",
}
READ = """
import json, sys
event = Event.from_dict(json.load(sys.stdin)[0])
kind = getattr(event, "event_type", None) or event.type
print(json.dumps([kind, event.id, event.subject, event.data["resourceInfo"]["name"]]))
"""


def settings_for(directory: Path, receiver: EventGridReceiver, schema: str) -> Path:
    settings = write_settings(directory, TABLE.format(url=receiver.url, schema=schema))
    (directory / "fleet.yaml").write_text(FLEET)
    return settings


def schedule(service: ServeProcess) -> str:
    event = service.post("/v1/events", {"type": "Freeze", "machines": ["web-0"]})
    return str(event["id"])


def test_each_status_has_one_id_though_the_service_is_killed_before_it_is_delivered(
    tmp_path: Path,
) -> None:
    expected: list[tuple[str, str]] = []
    with EventGridReceiver() as receiver:
        settings = settings_for(tmp_path, receiver, "EventGridSchema")
        with running_service(tmp_path, settings) as service:
            expected.append((schedule(service), "Scheduled"))
            receiver.wait(1)
        for number in range(KILLS):
            with running_service(tmp_path, settings) as service:
                if number % 2:  # what comes is received, and not answered
                    receiver.answering.clear()
                event, _ = expected[-1]
                service.post(f"/v1/events/{event}/cancel", {"reason": "another one"})
                expected.append((event, "Canceled"))
                expected.append((schedule(service), "Scheduled"))
                service.running.process.send_signal(signal.SIGKILL)
                service.running.process.wait(LIMIT)
            receiver.answering.set()
        with running_service(tmp_path, settings) as service:
            until(lambda: len(received(receiver)) >= len(expected))
            until(lambda: service.get("/v1/notify")[0]["waiting_since"] is None)
    assert list(received(receiver).values()) == expected


def received(receiver: EventGridReceiver) -> dict[str, tuple[str, str]]:
    """Return what was received, by id, in the order in which it was first received."""
    found: dict[str, tuple[str, str]] = {}
    for event, _ in list(receiver.events):
        properties = event["data"]["resourceInfo"]["properties"]
        status = properties["EventId"], properties["EventStatus"]
        assert found.setdefault(event["id"], status) == status
    return found


@pytest.mark.parametrize("schema", READER)
def test_azures_own_library_reads_what_is_sent(tmp_path: Path, schema: str) -> None:
    require((AZURE / ".ready").exists(), "Azure's programs: make .venv-azure/.ready")
    with (
        EventGridReceiver() as receiver,
        running_service(tmp_path, settings_for(tmp_path, receiver, schema)) as service,
    ):
        id = schedule(service)
        [(event, _)] = receiver.wait(1)
    read = subprocess.run(
        [PYTHON, "-c", READER[schema] + READ],
        input=json.dumps([event]),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert read.returncode == 0, read.stderr
    kind, message, subject, name = json.loads(read.stdout)
    assert kind == "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"
    assert (message, name) == (event["id"], id)
    assert subject.endswith(f"/providers/Microsoft.Maintenance/scheduledEvents/{id}")
