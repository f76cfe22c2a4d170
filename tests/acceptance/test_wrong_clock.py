"""A wall clock that is wrong for a while, as `forewarn serve` meets it: libfaketime shows the
service another time of day, and everything else is real."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from forking import run
from polling import until
from serving import FOREWARN, Serving, environment, made, serving

from forewarn import guard
from forewarn.core.time import DAY, MINUTE
from forewarn.testing.enclosure.fake_time import FakeTime

FOUR_YEARS = 4 * 365 * DAY
REBOOT = {"type": "Reboot", "machines": ["web-0"]}


@contextmanager
def elsewhen(directory: Path, settings: Path, ahead: int) -> Iterator[tuple[Serving, FakeTime]]:
    """A service whose time of day stands still, at first so far ahead of what it is."""
    with (
        FakeTime(guard.wall_us() + ahead) as fake,
        serving(directory, settings, before=["/usr/bin/env"], env=fake.environment({})) as service,
    ):
        yield service, fake


def readiness(service: Serving) -> dict[str, str]:
    """The parts that are not well."""
    try:
        said = service.get("/readyz")
    except urllib.error.HTTPError as error:
        with error:
            said = json.load(error)
    return {part: why for part, why in said["parts"].items() if why != "ok"}


def history(service: Serving) -> list[str]:
    return [record["what"] for record in service.get("/v1/history")["records"]]


def refusal(service: Serving, path: str, body: Any = None) -> tuple[int, str]:
    try:
        return 200, str(service.post(path, body))
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_clock_that_was_ahead_for_a_moment_is_noticed_and_can_be_made_good(
    tmp_path: Path,
) -> None:
    settings = made(tmp_path)
    with elsewhen(tmp_path, settings, FOUR_YEARS) as (wrong, _):
        assert wrong.poll()["Events"] == []
        event = wrong.post("/v1/events", REBOOT)["id"]
        promised = wrong.poll()["Events"][0]["NotBefore"]
    with serving(tmp_path, settings) as service:
        why = readiness(service)
        assert list(why) == ["clock"]
        assert "forewarn clock accept" in why["clock"]
        until(lambda: "the service is not well" in service.log)
        assert [event["NotBefore"] for event in service.poll()["Events"]] == [promised]
        explained = service.get(f"/v1/events/{event}/explain")
        assert "clock" in [hold["kind"] for hold in explained["holds"]]
        assert not any(hold.get("until") for hold in explained["holds"])
        status, says = refusal(service, "/v1/events", REBOOT | {"machines": ["web-1"]})
        assert (status, "forewarn clock accept" in says) == (409, True)
        shown = run(
            [*FOREWARN, "clock", "show", "--url", service.control],
            env=environment(tmp_path),
            capture_output=True,
        )
        assert "not trusted" in shown.stdout

        accepted = run(
            [*FOREWARN, "clock", "accept", "--url", service.control],
            env=environment(tmp_path),
            capture_output=True,
        )
        assert accepted.returncode == 0, accepted.stderr
        assert event in accepted.stderr  # it keeps the NotBefore that guests were shown
        assert readiness(service) == {}
        assert history(service)[:2] == ["retimed", "clock-accepted"]
        assert [event["NotBefore"] for event in service.poll()["Events"]] == [promised]
        service.post(f"/v1/events/{event}/cancel")
        again = service.post("/v1/events", REBOOT)
        assert abs(guard.wall_us() / 1e6 - _seconds(again["raised_at"])) < 3_600
        service.post(f"/v1/events/{again['id']}/approve")
        assert [event["EventStatus"] for event in service.poll()["Events"]] == ["Started"]
        assert refusal(service, "/v1/clock/accept")[0] == 409
    with serving(tmp_path, settings) as service:  # and so it stays
        assert readiness(service) == {}


def test_a_clock_that_is_ahead_at_the_start_does_no_damage_and_may_come_right(
    tmp_path: Path,
) -> None:
    settings = made(tmp_path, 'start_grace = "0s"\n')
    with serving(tmp_path, settings) as service:
        service.poll()
        service.post("/v1/events", REBOOT)
        before = history(service)
    with elsewhen(tmp_path, settings, FOUR_YEARS) as (wrong, fake):
        assert list(readiness(wrong)) == ["clock"]
        assert [event["EventStatus"] for event in wrong.poll()["Events"]] == ["Scheduled"]
        assert history(wrong)[-len(before) :] == before  # nothing is forgotten
        fake.set(guard.wall_us() + MINUTE)
        until(lambda: readiness(wrong) == {})
        until(lambda: "the service is well again" in wrong.log)
        assert [event["EventStatus"] for event in wrong.poll()["Events"]] == ["Scheduled"]
        fake.set(guard.wall_us() - DAY)
        until(lambda: list(readiness(wrong)) == ["clock"])
        fake.set(guard.wall_us() + 2 * MINUTE)
        until(lambda: readiness(wrong) == {})


def test_the_clock_can_be_accepted_while_no_service_runs(tmp_path: Path) -> None:
    settings = made(tmp_path)
    with elsewhen(tmp_path, settings, FOUR_YEARS) as (wrong, _):
        wrong.poll()
    done = run(
        [*FOREWARN, "clock", "accept", "--state", tmp_path / "state" / "forewarn.db"],
        env=environment(tmp_path),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    with serving(tmp_path, settings) as service:
        assert readiness(service) == {}
        assert "clock-accepted" in history(service)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
