"""An operator's program carries events out for the whole service: retries, doubt, what hangs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.core import Event, Status
from forewarn.core.access import Role
from forewarn.core.changes import EventMoved
from forewarn.drivers.command.driver import CommandDriver
from forewarn.drivers.command.options import CommandOptions, Program
from forewarn.node import settings
from forewarn.service.engine.ledger import Hung
from forewarn.support.program import MAX_OUTPUT
from forewarn.testing import SAMPLE, EventType, RefusedError, Service
from helpers.forked_cli import Forked
from helpers.token_api import api_with_token
from helpers.waiting import LIMIT

FOREWARN = [sys.executable, "-m", "forewarn"]
FLEET = "groups: [{name: web, kind: standalone, machines: [{name: web_0, address: 127.0.1.1}]}]"


class Carry:
    """A program in shell that writes down how it was called: verb and attempt by verb."""

    def __init__(self, directory: Path, text: str, name: str = "carry") -> None:
        self.path = directory / name
        self._log = directory / f"{name}.log"
        self.path.write_text(f"#!/bin/sh\necho $1 $FOREWARN_EVENT >> {self._log}\n{text}\n")
        self.path.chmod(0o755)

    def driver(self, **settings: Any) -> CommandDriver:
        return CommandDriver(Program(words=(str(self.path),), **settings))

    @property
    def calls(self) -> list[str]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [line.split()[0] for line in lines]


def started(service: Service, machine: str = "web_0", type: EventType = "Reboot") -> Event:
    service.get(machine)
    event = service.schedule(type, machine)._record
    service.approve(machine, event)
    service._session.settle()
    return event


def now(service: Service, event: Event) -> Event:
    found = service._session.run(service._session.node.platform.event(event.id))
    assert isinstance(found, Event)
    return found


def outputs(service: Service, event: Event) -> list[str]:
    """What the history has of what the driver said."""

    async def read() -> list[str]:
        return [
            item.output
            async for commit in service._session.node.store.commits(0)
            for entry in commit.entries
            for item in entry.items
            if isinstance(item, EventMoved) and item.event.id == event.id and item.output
        ]

    return service._session.run(read())


def typed(service: Service, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--url", service.control_url])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_program_carries_out_an_event_and_its_output_is_in_the_history(tmp_path: Path) -> None:
    carry = Carry(tmp_path, "echo out; echo err >&2")
    with Service(SAMPLE, driver=carry.driver()) as service:
        event = started(service)
        assert now(service, event).status is Status.FINISHED
        (output,) = outputs(service, event)
        assert sorted(output.split()) == ["err", "out"]
    assert carry.calls == ["check", "perform"]


def test_the_answer_of_a_program_may_have_a_note_for_people(tmp_path: Path) -> None:
    answer = {"moved": {"web_0": "host-c"}, "away": {"web_0": 0.043, "web_9": 1}}
    moved = f"echo connecting >&2; echo moved; echo '{json.dumps(answer)}'"
    carry = Carry(tmp_path, f'[ "$1" = check ] || {{ {moved}; }}')
    with Service(SAMPLE, sockets=True, driver=carry.driver()) as service:
        event = started(service, type="Redeploy")
        query = ("history", "--event", event.id, "--what", "finished")
        record = json.loads(typed(service, *query, "--json"))
        assert record["note"] in ("carried out: moved", "carried out: connecting")
        assert record["output"].split() in (["connecting", "moved"], ["moved", "connecting"])
        assert record["answer"] == answer
        shown = typed(service, "event", "show", event.id)
        assert re.search("stood still +web_0 for 0.043 s\n", shown)
        assert "host-c" not in typed(service, *query, "--output")
        assert "\n  connecting\n" in typed(service, *query, "--output")
        root = api_with_token(service, "root", Role.ADMIN)
        tenant = api_with_token(service, "team", Role.TENANT, groups=("web",))
        path = f"/v1/history?event={event.id}&what=finished"
        assert root.get(path).json()["records"] == [record]
        (shown,) = tenant.get(path).json()["records"]
        assert shown == record | {"output": "", "answer": {}}


def test_the_history_has_only_the_last_of_much_output(tmp_path: Path) -> None:
    carry = Carry(tmp_path, "yes | head -c 1000000; echo the end")
    with Service(SAMPLE, driver=carry.driver()) as service:
        (output,) = outputs(service, started(service))
        assert output.endswith("the end")
        assert len(output) <= MAX_OUTPUT + 2


def test_a_failed_attempt_is_repeated_after_pauses_that_double(tmp_path: Path) -> None:
    carry = Carry(tmp_path, '[ "$1" = check ] || { echo no power; exit 20; }')
    with Service(SAMPLE, driver=carry.driver()) as service:
        event = started(service)
        for pause, attempts in ((5, 1), (10, 2), (20, 3), (40, 4)):
            assert carry.calls.count("perform") == attempts
            service.clock.advance(pause - 1)
            assert carry.calls.count("perform") == attempts
            service.clock.advance(1)
        assert carry.calls == ["check"] + ["perform"] * 5
        attempt = now(service, event).attempt
        assert attempt is not None
        assert attempt.note == "no power"
        assert outputs(service, event) == ["no power"] * 5


def test_the_program_is_asked_again_after_the_time_it_named(tmp_path: Path) -> None:
    over = tmp_path / "over"
    text = (
        f"""[ -e {over} ] || {{ [ "$1" = check ] || {{ echo '{{"after": "7m"}}'; exit 10; }}; }}"""
    )
    carry = Carry(tmp_path, text)
    with Service(SAMPLE, driver=carry.driver()) as service:
        event = started(service)
        over.touch()
        service.clock.advance("6m59s")
        assert now(service, event).status is Status.STARTED
        service.clock.advance("1s")
        assert now(service, event).status is Status.FINISHED
    assert carry.calls == ["check", "perform", "perform"]


def test_an_event_that_the_program_vetoes_is_not_announced(tmp_path: Path) -> None:
    carry = Carry(tmp_path, "echo rack is locked; exit 20")
    with Service(SAMPLE, driver=carry.driver()) as service:
        with pytest.raises(RefusedError, match="rack is locked"):
            service.schedule("Reboot", "web_0")
        assert service.document("web_0")["Events"] == []


IN_DOUBT = """
case $1 in
    perform) [ -e DIR/works ] || { echo half way; exit 3; } ;;
    observe) echo no trace; exit 40 ;;
esac
"""


def test_in_doubt_the_event_waits_for_an_operator_to_say_retry(tmp_path: Path) -> None:
    carry = Carry(tmp_path, IN_DOUBT.replace("DIR", str(tmp_path)))
    with Service(SAMPLE, sockets=True, driver=carry.driver()) as service:
        event = started(service)
        service.clock.advance("7d")
        attempt = now(service, event).attempt
        assert attempt is not None
        assert attempt.stuck
        assert re.search(r"exit code 3: half way; .*\(exit code 40\): no trace", attempt.note)
        (output,) = outputs(service, event)
        assert output.splitlines() == ["half way", "no trace"]
        assert "half way" in typed(service, "event", "explain", event.id)
        (tmp_path / "works").touch()
        typed(service, "event", "retry", event.id)
        service._session.settle()
        assert now(service, event).status is Status.FINISHED
    assert carry.calls == ["check", "perform", "observe", "perform"]


def test_in_doubt_the_event_waits_for_an_operator_to_say_finish(tmp_path: Path) -> None:
    carry = Carry(tmp_path, IN_DOUBT.replace("DIR", str(tmp_path)))
    with Service(SAMPLE, sockets=True, driver=carry.driver()) as service:
        event = started(service)
        service.clock.advance("7d")
        assert now(service, event).status is Status.STARTED
        typed(service, "event", "finish", event.id, "--reason", "looked myself")
        over = now(service, event)
        assert over.status is Status.FINISHED
        assert "looked myself" in over.ending
    assert carry.calls == ["check", "perform", "observe"]


def test_a_program_that_may_be_repeated_is_simply_asked_again(tmp_path: Path) -> None:
    carry = Carry(tmp_path, IN_DOUBT.replace("DIR", str(tmp_path)))
    with Service(SAMPLE, driver=carry.driver(repeatable=True)) as service:
        event = started(service)
        (tmp_path / "works").touch()
        service.clock.advance("5s")
        assert now(service, event).status is Status.FINISHED
    assert carry.calls == ["check", "perform", "observe", "perform"]


def test_if_it_happened_although_the_program_broke_down_it_is_not_done_again(
    tmp_path: Path,
) -> None:
    carry = Carry(tmp_path, "echo $1ed; [ $1 != perform ] || exit 1")
    with Service(SAMPLE, driver=carry.driver()) as service:
        event = started(service)
        assert now(service, event).status is Status.FINISHED
        assert outputs(service, event) == ["performed\nobserveed"]
    assert carry.calls == ["check", "perform", "observe"]


def test_a_program_that_hangs_for_one_group_keeps_no_other_waiting(tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    hang = f'grep -q \'"group":"sql"\' || {{ exec 3>{fifo}; echo up >&3; sleep 1000; }}'
    carry = Carry(tmp_path, f'[ "$1" = check ] || {hang}')
    with Service(SAMPLE, driver=carry.driver()) as service:
        service.get("web_0")
        service.get("sql-0")
        slow = service.schedule("Reboot", "web_0")._record
        quick = service.schedule("Reboot", "sql-0")._record
        service.approve("web_0", slow)
        with fifo.open() as alive:  # which waits until the program has opened it too
            assert alive.readline() == "up\n"
            service.approve("sql-0", quick)

            async def until_over() -> None:
                while service._session.node.store.groups["sql"].event(quick.id) is not None:
                    await service._session.node.feed.changed("sql")

            service._session.run(until_over())
            assert now(service, quick).status is Status.FINISHED
            assert now(service, slow).status is Status.STARTED
            assert service.document("web_0")["Events"][0]["EventStatus"] == "Started"
            with pytest.raises(Hung, match=f"Reboot {slow.id}"):
                service._session.run(service._session.node.ledger.idle(0.01))
            service._session.run(service._session.node.__aexit__(None, None, None))
            assert alive.read() == ""  # the program and its child ended with the service


SETTINGS = 'fleet = "fleet.yaml"\nmetadata = "127.0.0.1:0"\ncontrol = "127.0.0.1:0"\n'


def read(directory: Path, text: str) -> Program | None:
    (directory / "fleet.yaml").write_text(FLEET)
    file = directory / "serve.toml"
    file.write_text(SETTINGS + text)
    options = settings.config(settings.read(file)).driver.options
    return options.resolve() if isinstance(options, CommandOptions) else None


def test_the_settings_choose_the_program(tmp_path: Path) -> None:
    carry = Carry(tmp_path, "")
    assert read(tmp_path, "") is None
    assert read(tmp_path, 'driver = "simulated"') is None
    table = 'driver = "command"\n[command]\nprogram = ["./carry", "--rack", "7"]\n'
    words = (str(carry.path), "--rack", "7")
    assert read(tmp_path, table) == Program(words=words)
    assert read(tmp_path, table + 'timeout = "90s"\nrepeatable = true\nmax_at_once = 9') == Program(
        words=words, timeout=90.0, repeatable=True, max_at_once=9
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('driver = "comand"', "driver = 'comand': "),
        ('driver = "command"', "needs a table [command]"),
        ('[command]\nprogram = ["./carry"]', 'with driver = "command"'),
        ('driver = "command"\n[command]\nprogam = []', "'program'?"),
        ('driver = "command"\n[command]\ntimeout = "1m"', "command.program is missing"),
        ('driver = "command"\n[command]\nprogram = []', "command is empty"),
        ('driver = "command"\n[command]\nprogram = ["./gone"]', "is no program"),
        ('driver = "command"\n[command]\nprogram = ["./fleet.yaml"]', "is not executable"),
        ('driver = "command"\n[command]\nprogram = ["sh"]\ntimeout = "0s"', "more than 0"),
        ('driver = "command"\n[command]\nprogram = ["sh"]\ntimeout = "x"', "command.timeout: "),
        ('driver = "command"\n[command]\nprogram = ["sh"]\nmax_at_once = 0', "at least 1"),
    ],
)
def test_invalid_settings_of_the_command_driver_are_refused_in_one_line(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(settings.SettingsError) as refused:
        read(tmp_path, text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_dev_takes_a_driver_program(tmp_path: Path) -> None:
    carry = Carry(tmp_path, "")
    ports = ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0", "--clock", "virtual"]
    words = [*FOREWARN, "dev", *ports, "--driver-command", f"{carry.path} 'one word'"]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    process = Forked(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    assert process.stdout is not None
    try:
        urls = json.loads(process.stdout.readline().partition(b" ")[2])
        url = ["--url", urls["control"]]
        runner = CliRunner()
        made = runner.invoke(app, ["event", "schedule", "Reboot", "web_0", "--json", *url])
        event = json.loads(made.stdout)["id"]
        assert runner.invoke(app, ["clock", "advance", "15m", *url]).exit_code == 0
        shown = json.loads(runner.invoke(app, ["event", "show", event, "--json", *url]).stdout)
        assert shown["status"] == "Finished"
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(LIMIT)
    assert carry.calls == ["one", "one"]


def test_dev_refuses_a_missing_driver_program_in_one_line(tmp_path: Path) -> None:
    words = ["dev", "--driver-command", str(tmp_path / "gone")]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("forewarn: --driver-command: ")
    assert refused.stderr.endswith(f"{tmp_path / 'gone'}\n")
