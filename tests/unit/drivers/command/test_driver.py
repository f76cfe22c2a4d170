"""The command driver by itself: what a program is told, what its answers mean, how it is ended."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import select
import tracemalloc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from forewarn.core import EventType, Source
from forewarn.core.time import MINUTE, SECOND
from forewarn.drivers.command.driver import CommandDriver
from forewarn.drivers.command.options import Program
from forewarn.drivers.command.slots import GROUP_SHARE, Slots
from forewarn.drivers.port import (
    Again,
    Done,
    Failed,
    Happened,
    Later,
    NotYet,
    Ok,
    Part,
    Task,
    TaskMachine,
    Unknown,
    Veto,
)
from forewarn.support import guard, program
from forewarn.support.files.task import RETRY_EVERY
from forewarn.support.program import MAX_OUTPUT, ProgramUnusable, find_program
from helpers.waiting import LIMIT

START = 1_800_000_000 * SECOND
TASK = Task(
    event="E",
    group="web",
    type=EventType.REDEPLOY,
    source=Source.PLATFORM,
    machines=(TaskMachine("web_0", "a", ("10.0.0.1",)),),
    known_hosts=frozenset("abc"),
    attempt=1,
    started_at=START,
    now=START + SECOND // 2,
)


def shell(text: str, **settings: Any) -> CommandDriver:
    """A program that is these words of shell; $1 is the verb."""
    return CommandDriver(Program(words=("/bin/sh", "-c", text, "carry"), **settings))


def perform(text: str, **settings: Any) -> object:
    return asyncio.run(shell(text, **settings).perform(TASK))


def observe(text: str, **settings: Any) -> object:
    return asyncio.run(shell(text, **settings).observe(TASK))


def check(text: str, **settings: Any) -> object:
    return asyncio.run(shell(text, **settings).check(TASK))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, Done({}, "word")),
        (10, Again(TASK.now + 30 * SECOND, "word")),
        (20, Failed("word", "word")),
        (30, Done({}, "word")),
        (40, Unknown("the program cannot tell (exit code 40): word", "word")),
        (1, Unknown("the program ended with exit code 1: word", "word")),
        (126, Unknown("the program ended with exit code 126: word", "word")),
    ],
)
def test_each_exit_code_of_perform_has_its_outcome(
    run: Callable[[Coroutine[Any, Any, object]], object], code: int, expected: object
) -> None:
    assert run(shell(f"echo word; exit {code}").perform(TASK)) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, Happened({}, "word")),
        (10, NotYet()),
        (20, NotYet()),
        (30, Happened({}, "word")),
        (40, Unknown("the program cannot tell (exit code 40): word", "word")),
        (1, Later(None, "the program ended with exit code 1: word")),
        (255, Later(None, "the program ended with exit code 255: word")),
    ],
)
def test_each_exit_code_of_observe_has_its_outcome(code: int, expected: object) -> None:
    assert observe(f"echo word; exit {code}") == expected


def test_a_program_can_say_when_it_may_see_more() -> None:
    seen = observe("""echo no route; echo '{"after": "2m"}'; exit 255""")
    assert seen == Later(TASK.now + 2 * MINUTE, "the program ended with exit code 255: no route")


def test_a_program_says_how_far_it_is_while_it_runs(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    os.mkfifo(go_on)
    lines = r"""echo start; printf '{"progress": "10 %%"}\n{"progress": "63 %%'"""
    text = f"""{lines}; read _ < '{go_on}'; echo ', 40 s"}}'; echo end"""
    reports: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def body() -> None:
        driver = CommandDriver(
            Program(words=("/bin/sh", "-c", text, "carry")),
            on_progress=lambda *report: reports.put_nowait(report),
        )
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
            call = tasks.create_task(driver.perform(TASK))
            assert await reports.get() == (TASK.event, "10 %")  # it waits for us
            await asyncio.to_thread(go_on.write_text, "\n")
            assert await reports.get() == (TASK.event, "63 %, 40 s")
            assert await call == Done(output="start\nend")

    asyncio.run(body())


def test_work_on_an_empty_host_has_verbs_of_its_own() -> None:
    task = msgspec.structs.replace(TASK, work=True, host="h1", group="", machines=())
    task = msgspec.structs.replace(task, ticket="CHG-7", rollout="R", step="host/h1/work")
    text = 'echo "$1 $FOREWARN_HOST $FOREWARN_TICKET $FOREWARN_STEP"; cat'
    driver = shell(text, work=True)
    assert driver.works
    for call, verb in ((driver.perform, "work"), (driver.observe, "observe-work")):
        first, line = asyncio.run(call(task)).output.splitlines()  # type: ignore[union-attr]
        assert first == f"{verb} h1 CHG-7 host/h1/work"
        reported = json.loads(line)
        assert (reported["verb"], reported["work"], reported["host"], reported["type"]) == (
            verb,
            True,
            "h1",
            "",
        )
        assert (reported["machines"], reported["rollout"], reported["step"]) == (
            [],
            "R",
            "host/h1/work",
        )
    refusing = shell('echo "$1"; exit 20', work=True)
    assert asyncio.run(refusing.check(task)) == Veto("check-work")


def test_a_program_that_is_not_configured_for_host_work_is_not_called_for_it() -> None:
    task = msgspec.structs.replace(TASK, work=True, host="h1", group="", machines=())
    driver = shell("exit 0")
    assert not driver.works
    assert isinstance(asyncio.run(driver.perform(task)), Failed)
    assert isinstance(asyncio.run(driver.observe(task)), Later)
    assert isinstance(asyncio.run(driver.check(task)), Veto)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, Ok()),
        (20, Veto("locked")),
        *(
            (code, Veto(f"the check itself failed: the program {how}: locked"))
            for code, how in (
                (1, "ended with exit code 1"),
                (10, "ended with exit code 10"),
                (30, "ended with exit code 30"),
                (40, "cannot tell (exit code 40)"),
            )
        ),
    ],
)
def test_each_exit_code_of_check_has_its_outcome(code: int, expected: object) -> None:
    assert check(f"echo looking; echo locked >&2; exit {code}") == expected


def test_no_program_is_started_by_a_service_that_may_not_act() -> None:
    program = Program(words=("/bin/sh", "-c", "exit 0"))
    driver = CommandDriver(program, may_act=lambda: False)
    assert isinstance(asyncio.run(driver.perform(TASK)), Failed)
    assert asyncio.run(driver.check(TASK)) == Ok()


def test_exit_code_20_without_output_is_a_veto() -> None:
    veto = check("exit 20")
    assert isinstance(veto, Veto)
    assert veto.why
    assert "check itself" not in veto.why


def test_the_outcome_of_a_program_killed_by_a_signal_is_unknown() -> None:
    performed, observed = perform("kill -KILL $$"), observe("kill $$")
    assert isinstance(performed, Unknown)
    assert performed.why.endswith("SIGKILL")
    assert isinstance(observed, Later)
    assert observed.why.endswith("SIGTERM")


def test_a_program_is_given_the_verb_and_the_task() -> None:
    place = ("web_0", "a", ("10.0.0.1",), "4F00", {"tier": "web"})
    machine = TaskMachine(*place, target="b", alternatives=("c",))
    joint = msgspec.structs.replace(
        TASK,
        machines=(machine,),
        host="a",
        parts=(Part("E", "web", ("web_0",)),),
        host_labels={"a": {"rack": "7"}},
        description="Host update",
        note="fan",
        ticket="CHG-1",
        rollout="R",
        step="web/0",
        fence=48211,
    )
    done = asyncio.run(shell('echo "$0 $# $1"; cat').observe(joint))
    assert isinstance(done, Happened)
    line, reported = done.output.split("\n")
    assert line == "carry 1 observe"
    assert json.loads(reported) == {
        "verb": "observe",
        "work": False,
        "event": "E",
        "group": "web",
        "type": "Redeploy",
        "source": "Platform",
        "machines": [
            {
                "name": "web_0",
                "host": "a",
                "addresses": ["10.0.0.1"],
                "vm_id": "4F00",
                "labels": {"tier": "web"},
                "target": "b",
                "alternatives": ["c"],
                "host_failed": False,
            }
        ],
        "host": "a",
        "moves": False,
        "in_place": False,
        "parts": [{"event": "E", "group": "web", "machines": ["web_0"]}],
        "host_labels": {"a": {"rack": "7"}},
        "duration": -1,
        "description": "Host update",
        "note": "fan",
        "ticket": "CHG-1",
        "rollout": "R",
        "step": "web/0",
        "attempt": 1,
        "fence": 48211,
        "started_at": "2027-01-15T08:00:00Z",
        "now": "2027-01-15T08:00:00.500000Z",
    }


def test_the_program_gets_little_of_the_services_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FOREWARN_TOKEN", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    task = msgspec.structs.replace(TASK, ticket="CHG\0-1", rollout="R", step="web/0")
    done = asyncio.run(shell("env").perform(task))
    assert isinstance(done, Done)
    assert "FOREWARN_GROUP=web" in done.output
    assert "FOREWARN_TICKET=CHG-1" in done.output
    assert "FOREWARN_ROLLOUT=R" in done.output
    assert "FOREWARN_STEP=web/0" in done.output
    assert "FOREWARN_EVENT=E" in done.output
    assert "FOREWARN_VERB=perform" in done.output
    assert "FOREWARN_TYPE=Redeploy" in done.output
    assert f"PATH={os.environ['PATH']}" in done.output
    assert "LANG=C.UTF-8" in done.output
    assert "secret" not in done.output


@pytest.mark.parametrize(("after", "seconds"), [('"90s"', 90), ("90", 90), ('"2m"', 120)])
def test_a_program_can_say_when_to_ask_again(after: str, seconds: int) -> None:
    done = perform(f"""echo '{{"after": {after}}}'; exit 10""")
    assert isinstance(done, Again)
    assert done.at == TASK.now + seconds * SECOND


@pytest.mark.parametrize("after", ['"soon"', "-5", "[]", '"-1s"'])
def test_the_outcome_of_an_invalid_answer_is_unknown(after: str) -> None:
    done = perform(f"""echo '{{"after": {after}}}'; exit 10""")
    assert isinstance(done, Unknown)
    assert "cannot be used" in done.why
    assert after.strip('"') in done.answer


def test_a_program_can_say_to_which_hosts_machines_have_moved() -> None:
    printed = """echo moving; echo '{"moved": {"web_0": "c"}}'"""
    assert perform(printed) == Done({"web_0": "c"}, "moving", '{"moved": {"web_0": "c"}}')
    seen = observe(printed)
    assert isinstance(seen, Happened)
    assert seen.moved == {"web_0": "c"}


def test_a_program_can_say_for_how_long_machines_stood_still() -> None:
    printed = """echo '{"away": {"web_0": 0.043}}'"""
    assert perform(printed) == Done({}, "", '{"away": {"web_0": 0.043}}', {"web_0": 0.043})
    seen = observe(printed)
    assert isinstance(seen, Happened)
    assert seen.away == {"web_0": 0.043}


@pytest.mark.parametrize(
    ("moved", "why"),
    [
        ('{"web_0": "z"}', "that 'web_0' is on host 'z' now, which is no host of the fleet"),
        ('{"web_9": "b"}', "that machine 'web_9' has moved; the event is about web_0"),
        ('{"web_0": 7}', "the program's answer cannot be used"),
        ('["web_0"]', "the program's answer cannot be used"),
    ],
)
def test_the_outcome_of_an_invalid_move_is_unknown(moved: str, why: str) -> None:
    for verb in (perform, observe):
        done = verb(f"""echo '{{"moved": {moved}}}'""")
        assert isinstance(done, Unknown)
        assert why in done.why


def test_only_events_that_move_machines_can_report_moves() -> None:
    printed = shell("""echo '{"moved": {"web_0": "b"}}'""")
    reboot = msgspec.structs.replace(TASK, type=EventType.REBOOT)
    done = asyncio.run(printed.perform(reboot))
    assert isinstance(done, Unknown)
    assert "Reboot moves none" in done.why
    migration = msgspec.structs.replace(TASK, type=EventType.FREEZE, moves=True)
    assert isinstance(asyncio.run(printed.perform(migration)), Done)


@pytest.mark.parametrize("line", ['{"level": "info", "msg": "done"}', "{done}", "[1]", "null", '"'])
def test_a_last_line_that_is_not_an_answer_is_output(line: str) -> None:
    assert perform(f"echo '{line}'") == Done({}, line)


def test_the_reason_is_the_last_line_that_is_not_an_answer() -> None:
    refused = perform("""echo no disk; echo '{"unsuitable": ["b"]}'; exit 20""")
    answer = '{"unsuitable": ["b"]}'
    assert refused == Failed("no disk", "no disk", answer, unsuitable=("b",))
    assert perform("""echo no disk; echo '{"after": "1s"}'; exit 20""") == Failed(
        "no disk", "no disk", '{"after": "1s"}'
    )


def test_an_answer_that_is_longer_than_the_output_that_is_kept_is_no_output() -> None:
    moved = ", ".join([f'"web_0": "{"c" if n else "b"}"' for n in range(MAX_OUTPUT // 8)])
    done = perform(f"""cat <<'END'\nlooking\n{{"moved": {{{moved}}}}}\nEND""")
    assert isinstance(done, Done)
    assert done.output == ""
    assert json.loads(done.answer) == {"moved": {"web_0": "c"}}


def test_only_the_end_of_long_output_is_kept() -> None:
    done = perform("yes nonsense | head -c 50000000; echo; echo the end; exit 20")
    assert isinstance(done, Failed)
    assert done.why == "the end"
    assert done.output.startswith("… ")
    assert done.output.endswith("\nthe end")
    assert len(done.output) <= MAX_OUTPUT + 2


def test_much_output_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        perform("yes nonsense | head -c 50000000")
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_output_that_would_act_on_a_terminal_is_made_visible() -> None:
    done = perform(r"""printf 'a\033[2Jb\000c\377\r\n\302\233d\342\200\256e\ttab\n'; exit 0""")
    assert done == Done({}, "a\\x1b[2Jb\\x00c\ufffd\n\\x9bd\\u202ee\ttab")


def test_a_program_that_reads_nothing_of_a_long_task_is_not_waited_for() -> None:
    many = msgspec.structs.replace(TASK, description="x" * 200_000)
    assert asyncio.run(shell("exit 30").perform(many)) == Done()
    size = asyncio.run(shell("wc -c").perform(many))
    assert isinstance(size, Done)
    assert int(size.output) > 200_000


def test_what_a_program_leaves_running_is_not_waited_for() -> None:
    done = perform("sleep 1000 & echo $!")
    assert isinstance(done, Done)
    os.kill(int(done.output), 9)


def test_a_program_that_does_not_exist_has_done_nothing(tmp_path: Path) -> None:
    driver = CommandDriver(Program(words=(str(tmp_path / "gone"),)))
    performed = asyncio.run(driver.perform(TASK))
    assert isinstance(performed, Failed)
    assert "gone" in performed.why
    observed = asyncio.run(driver.observe(TASK))
    assert isinstance(observed, Later)
    assert os.strerror(errno.ENOENT) in observed.why
    checked = asyncio.run(driver.check(TASK))
    assert isinstance(checked, Veto)
    assert os.strerror(errno.ENOENT) in checked.why


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that do not heed SIGTERM are killed soon after."""
    monkeypatch.setattr(program, "END_GRACE", 0.1)


class Tree:
    """Programs that say they are up, and hold a pipe open as long as one of them lives."""

    def __init__(self, directory: Path) -> None:
        self.fifo = directory / "alive"
        os.mkfifo(self.fifo)
        self._fd = os.open(self.fifo, os.O_RDONLY | os.O_NONBLOCK)
        # A child in the background, and neither heeds SIGTERM.
        self.text = f"trap '' TERM; exec 3>{self.fifo}; sleep 1000 & echo up >&3; sleep 1000; exit"

    async def up(self) -> None:
        assert await self._read() == b"up\n"

    def started(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """Start programs as `start` does, and return when they are up."""

        def started(*arguments: Any) -> Any:
            process = start(*arguments)
            assert select.select([self._fd], [], [], LIMIT)[0]
            assert os.read(self._fd, 100) == b"up\n"
            return process

        return started

    async def gone(self) -> None:
        assert await self._read() == b""
        os.close(self._fd)

    async def _read(self) -> bytes:
        async with asyncio.timeout(LIMIT):
            loop, ready = asyncio.get_running_loop(), asyncio.Event()
            while True:
                loop.add_reader(self._fd, ready.set)
                await ready.wait()
                loop.remove_reader(self._fd)
                ready.clear()
                try:
                    return os.read(self._fd, 100)
                except BlockingIOError:
                    continue


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_when_its_time_is_up_the_program_is_killed_with_all_its_children(
    run: Callable[[Coroutine[Any, Any, None]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body() -> None:
        tree = Tree(tmp_path)
        monkeypatch.setattr(program, "_start", tree.started(program._start))
        done = await shell(f"echo working; {tree.text}", timeout=1.0).perform(TASK)
        assert isinstance(done, Unknown)
        assert "within 1 s" in done.why
        assert (done.why.rpartition(": ")[2], done.output) == ("working", "working")
        await tree.gone()

    run(body())


@pytest.mark.usefixtures("short_grace")
def test_a_cancelled_call_kills_the_program_with_all_its_children(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        tree = Tree(tmp_path)
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(shell(tree.text).perform(TASK))
            await tree.up()
            working.cancel()
        await tree.gone()

    asyncio.run(body())


@pytest.mark.parametrize("hanging_groups", [1, 12])
def test_groups_whose_programs_hang_keep_no_other_waiting(hanging_groups: int) -> None:
    async def body() -> None:
        driver = shell('[ "$FOREWARN_EVENT" = B ] || exec sleep 600', max_at_once=4)
        async with asyncio.TaskGroup() as tasks:
            hanging = [
                tasks.create_task(
                    driver.perform(
                        msgspec.structs.replace(
                            TASK, event=f"A{n}", group=f"web-{n % hanging_groups}"
                        )
                    )
                )
                for n in range(24)
            ]
            other = msgspec.structs.replace(TASK, event="B", group="sql")
            for _ in range(3):  # the others are all before it
                assert await driver.check(other) == Ok()
                assert await driver.perform(other) == Done()
            assert not any(task.done() for task in hanging)
            for task in hanging:
                task.cancel()

    asyncio.run(body())


def test_the_number_of_programs_of_one_group_is_limited(tmp_path: Path) -> None:
    """One always, and its share of what groups have in common."""

    async def body() -> None:
        at_work, most = 0, 0
        room = Slots(8)
        gate = asyncio.Event()

        async def work() -> None:
            nonlocal at_work, most
            async with room.take("web"):
                at_work += 1
                most = max(most, at_work)
                await gate.wait()
                at_work -= 1

        async with asyncio.TaskGroup() as tasks:
            for _ in range(20):
                tasks.create_task(work())
            await guard.pause(0.01)
            assert at_work == 1 + 8 // GROUP_SHARE
            gate.set()
        assert most == 1 + 8 // GROUP_SHARE

    asyncio.run(body())


def test_a_program_started_before_a_restart_is_waited_for_before_another_is_started(
    tmp_path: Path,
) -> None:
    log, release = tmp_path / "log", tmp_path / "release"
    os.mkfifo(release)
    text = f"echo $1 >> {log}; [ $1 = observe ] || cat {release}; echo $1 over >> {log}"
    program = Program(words=("/bin/sh", "-c", text, "carry"))

    async def body() -> None:
        async with asyncio.TaskGroup() as tasks:
            earlier = tasks.create_task(CommandDriver(program, tmp_path / "papers").perform(TASK))
            writer = await asyncio.to_thread(os.open, release, os.O_WRONLY)  # it is at work
            later = CommandDriver(program, tmp_path / "papers")
            seen = tasks.create_task(later.observe(TASK))
            impatient = msgspec.structs.replace(program, timeout=RETRY_EVERY * 2)
            waiting = await CommandDriver(impatient, tmp_path / "papers").observe(TASK)
            assert isinstance(waiting, Later)
            assert "is still running" in waiting.why
            os.close(writer)
            assert await earlier == Done()
            assert await seen == Happened()

    asyncio.run(body())
    assert log.read_text().split("\n")[:-1] == [
        "perform",
        "perform over",
        "observe",
        "observe over",
    ]
    assert list((tmp_path / "papers").iterdir()) == []


def test_a_program_is_found_or_refused_in_one_line(tmp_path: Path) -> None:
    carry = tmp_path / "carry"
    assert find_program(["sh", "-e"])[1:] == ("-e",)
    with pytest.raises(ProgramUnusable, match="'no-such-thing' in PATH"):
        find_program(["no-such-thing"])
    with pytest.raises(ProgramUnusable, match=f"no program {carry}"):
        find_program([str(carry)])
    carry.write_text("#!/bin/sh\n")
    with pytest.raises(ProgramUnusable, match="not executable; run chmod"):
        find_program([str(carry)])
    with pytest.raises(ProgramUnusable, match="not executable"):
        find_program([str(tmp_path)])
    with pytest.raises(ProgramUnusable, match="empty"):
        find_program([])
    carry.chmod(0o755)
    assert find_program(["./carry", "x"], tmp_path) == (str(carry), "x")
