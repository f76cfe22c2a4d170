"""A virtual clock in a process of its own, and a client in another: what the commands say and do.

One service and one client for all of it; the client polls as any client does, only more often.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.testing import SAMPLE, Service
from helpers.forked_cli import Forked
from helpers.waiting import LIMIT, until

FOREWARN = [sys.executable, "-m", "forewarn"]
CLIENT = """
import json, sys, time, urllib.request
request = urllib.request.Request(
    sys.argv[1] + "/metadata/scheduledevents?api-version=2020-07-01", headers={"Metadata": "true"}
)
last = None
while True:
    with urllib.request.urlopen(request) as answer:
        document, date = json.load(answer), answer.headers["Date"]
    if document != last:
        last = document
        statuses = [event["EventStatus"] for event in document["Events"]]
        print(json.dumps({"statuses": statuses, "date": date}), flush=True)
    time.sleep(0.02)
"""


class Played:
    def __init__(self, room: Path) -> None:
        env = {**os.environ, "XDG_RUNTIME_DIR": str(room)}
        ports = ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
        self.log = room / "stderr"
        with self.log.open("wb") as log:
            self.service = Forked(
                [*FOREWARN, "dev", "--clock", "virtual", *ports],
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
            )
        assert self.service.stdout is not None
        ready = json.loads(self.service.stdout.readline().partition(b" ")[2])
        self.url = ready["control"]
        [guest] = [m for m in self.reported("machine", "list") if m["name"] == "web_0"]
        self.client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, guest["metadata_url"]], stdout=subprocess.PIPE
        )
        self.seen: list[Any] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        until(lambda: len(self.seen) == 1)

    def does(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*words, "--url", self.url])

    def reported(self, *words: str) -> Any:
        done = self.does(*words, "--json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def statuses(self) -> list[list[str]]:
        return [line["statuses"] for line in self.seen]

    def stop(self) -> None:
        for process in (self.client, self.service):
            process.terminate()
            process.wait(LIMIT)
        self._reader.join(LIMIT)
        for process in (self.client, self.service):
            assert process.stdout is not None
            process.stdout.close()

    def _read(self) -> None:
        assert self.client.stdout is not None
        for line in self.client.stdout:
            self.seen.append(json.loads(line))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    played = Played(tmp_path_factory.mktemp("played"))
    yield played
    played.stop()


def test_a_client_in_another_process_sees_all_of_twenty_five_minutes(played: Played) -> None:
    before = played.reported("clock", "show")
    assert (before["virtual"], before["running_speed"]) == (True, 0)
    played.reported("event", "schedule", "Reboot", "web_0")
    done = played.does("clock", "play", "25m")
    assert done.exit_code == 0
    assert "runs          only " in done.stdout
    assert played.statuses == [[], ["Scheduled"], ["Started"], []]
    assert len({line["date"] for line in played.seen}) == 3  # it was announced at once


def test_the_log_has_the_time_of_the_clock_alone(played: Played) -> None:
    now = datetime.fromisoformat(played.reported("clock", "advance", "3d")["now"])
    address = played.reported("machine", "show", "web_1")["metadata_url"]
    with pytest.raises(HTTPError, match="400"):
        urlopen(f"{address}/metadata/scheduledevents", timeout=LIMIT)
    until(lambda: "was refused" in played.log.read_text())
    advanced, refused = played.log.read_text().splitlines()[-2:]
    assert advanced.startswith(f"{now:%Y-%m-%d %H:%M:%SZ}  the virtual clock was advanced")
    assert refused.startswith(f"{now:%H:%M:%S}  warning: a request ")


def test_a_clock_that_runs_is_shown_and_paused(played: Played) -> None:
    shown = len(played.seen)
    played.reported("event", "schedule", "Reboot", "web_0")
    assert played.reported("clock", "resume", "--speed", "3600")["running_speed"] == 3_600
    until(lambda: len(played.seen) == shown + 3)
    assert "runs          by itself, 3600 times as fast" in played.does("clock", "show").stdout
    assert played.statuses[shown:] == [["Scheduled"], ["Started"], []]
    stood = played.reported("clock", "pause")
    assert stood["running_speed"] == 0
    assert played.reported("clock", "show")["now"] == stood["now"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["resume", "--speed", "0"], "at most 86400, not 0"),
        (["resume", "--speed", "nan"], "'nan' is not a number"),
        (["resume", "--speed", "90000"], "at most 86400, not 90000"),
        (["play", "soon"], "'soon' is not "),
        (["play", "2560000d"], "the year 9000"),
    ],
)
def test_an_impossible_speed_or_duration_is_refused_in_one_line(
    played: Played, words: list[str], says: str
) -> None:
    before = played.reported("clock", "show")
    refused = played.does("clock", *words)
    assert refused.exit_code != 0
    assert says in " ".join(refused.stderr.replace("│", " ").split())
    assert played.reported("clock", "show") == before


def test_real_time_is_neither_played_nor_paused() -> None:
    with Service(SAMPLE, real_time=True) as service:
        url = ["--url", service.control_url]
        for words in (["play", "1m"], ["resume"], ["pause"], ["advance", "1m"]):
            refused = CliRunner().invoke(app, ["clock", *words, *url])
            assert refused.exit_code == 1
            assert refused.stderr.startswith("forewarn: ")
            assert refused.stderr.endswith("--clock virtual\n")
        shown = CliRunner().invoke(app, ["clock", "show", *url])
        assert "runs          by itself\n" in shown.stdout


def test_playing_for_long_is_answered_in_parts_before_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half way, and then asked again: the command knows nothing of it."""
    monkeypatch.setattr("forewarn.control.routes.clock.PLAY_FOR", 0.0)
    with Service(SAMPLE) as service:
        event = service.schedule("Reboot", "web_0")
        url = service.control_url
        answer = json.loads(
            CliRunner().invoke(app, ["clock", "play", "1h", "--json", "--url", url]).stdout
        )
        assert answer["now"] == "2027-01-15T09:00:00Z"
        assert event.status == "Finished"
