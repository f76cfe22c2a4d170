"""The state on disk: what survives what, and what is found when somebody comes back to it."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.agent.running.start import RUNNER
from forewarn.agent.state import durable, locking
from forewarn.agent.state.runs import Outcome, Run, State
from forewarn.agent.state.store import KEPT_CASES, KEPT_FOR, StateStore, StateTaken, StateUnusable
from helpers.agent_world import BEGINNING, a_case, event, hook


def ordered(shelf: StateStore, *more: str) -> Run:
    command = ("sh", "-c", "echo here > effect", *more)
    case = a_case(msgspec.structs.replace(hook("hook"), commands={"prepare": command}))
    shelf.put(case)
    return shelf.order(case, case.hooks[0], "prepare", 1, None)


def run(shelf: StateStore, ordered: Run) -> None:
    directory = str(shelf.directory("E1.1", ordered))
    subprocess.run([sys.executable, "-I", "-S", str(RUNNER), directory], check=True)


def test_cases_are_found_as_they_were_left(tmp_path: Path) -> None:
    shelf = StateStore(tmp_path / "state")
    case = a_case(hook("a"), approve="coordinated", labels={"tier": "web"}, lead=5.0)
    shelf.put(case)
    shelf.order(case, case.hooks[0], "prepare", 1, None)
    shelf.release()
    again = StateStore(tmp_path / "state")
    assert again.cases() == [case]
    (found,) = again.runs(case.id)
    assert (found.hook, found.stage, found.attempt, found.state) == ("a", "prepare", 1, "ordered")
    later = again.order(case, case.hooks[0], "undo", 1, None)
    assert later.number == found.number + 1
    again.release()


def test_a_directory_has_one_agent(tmp_path: Path) -> None:
    shelf = StateStore(tmp_path)
    with pytest.raises(StateTaken, match="another agent works with"):
        StateStore(tmp_path)
    shelf.release()
    StateStore(tmp_path).release()


def test_it_has_one_agent_also_if_a_hook_removes_the_lock(tmp_path: Path) -> None:
    first = StateStore(tmp_path / "state")
    (tmp_path / "state" / "lock").unlink()
    with pytest.raises(StateTaken):
        StateStore(tmp_path / "state")
    first.release()
    StateStore(tmp_path / "state").release()


def test_a_command_that_removes_the_lock_of_its_run_is_still_known_to_be_at_work(
    tmp_path: Path,
) -> None:
    shelf = StateStore(tmp_path / "state")
    removed, go_on = tmp_path / "removed", tmp_path / "go-on"
    os.mkfifo(removed)
    os.mkfifo(go_on)
    script = f"rm {shelf.state}/cases/*/runs/*/lock; echo > {removed}; cat {go_on}"
    case = a_case(msgspec.structs.replace(hook("hook"), commands={"prepare": ("sh", "-c", script)}))
    shelf.put(case)
    run = shelf.order(case, case.hooks[0], "prepare", 1, None)
    directory = str(shelf.directory("E1.1", run))
    with subprocess.Popen([sys.executable, "-I", "-S", str(RUNNER), directory]):
        removed.read_text()
        (working,) = shelf.runs("E1.1")
        go_on.write_text("")
    assert working.state == State.WORKING
    (ended,) = shelf.runs("E1.1")
    assert (ended.state, ended.result and ended.result.code) == (State.DONE, 0)
    shelf.release()


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateUnusable, match="file"):
        StateStore(tmp_path / "file" / "state")


@pytest.mark.parametrize("which", [".", "cases"])
def test_a_place_that_others_can_write_is_refused_since_what_is_in_it_is_run(
    tmp_path: Path, which: str
) -> None:
    StateStore(tmp_path / "state").release()
    (tmp_path / "state" / which).chmod(0o777)
    with pytest.raises(StateUnusable, match="can be written by anybody"):
        StateStore(tmp_path / "state")


def test_what_a_hook_has_kept_stays_if_its_undo_was_given_up(tmp_path: Path) -> None:
    shelf = StateStore(tmp_path)
    case = a_case(hook("a"), hook("b"))
    shelf.put(case)
    for one in case.hooks:
        shelf.order(case, one, "prepare", 1, None)
    shelf.close(case, ["b"])
    assert [path.name for path in (tmp_path / "hooks" / case.id).iterdir()] == ["b"]
    shelf.release()


def test_what_was_half_made_is_cleared_and_what_cannot_be_read_is_left_and_told(
    tmp_path: Path,
) -> None:
    shelf = StateStore(tmp_path)
    shelf.put(a_case())
    (tmp_path / "cases" / "half.1").mkdir()
    (tmp_path / "cases" / "spoilt.1").mkdir()
    (tmp_path / "cases" / "spoilt.1" / "case").write_text('{"id":')
    assert [case.id for case in shelf.cases()] == ["E1.1"]
    (told,) = shelf.unreadable
    assert "spoilt.1" in told
    assert {path.name for path in (tmp_path / "cases").iterdir()} == {"E1.1", "spoilt.1"}
    shelf.release()


def test_a_run_that_nobody_ordered_is_none(tmp_path: Path) -> None:
    shelf = StateStore(tmp_path)
    run = ordered(shelf)
    (shelf.directory("E1.1", run) / "order").unlink()
    for strange in ("something else", "000009.sometime.1.hook"):
        (shelf.directory("E1.1", run).parent / strange).mkdir()
    shelf.release()
    shelf = StateStore(tmp_path)
    assert shelf.runs("E1.1") == ()
    shelf.release()


def test_what_was_cancelled_is_never_begun(tmp_path: Path) -> None:
    shelf = StateStore(tmp_path)
    order = ordered(shelf)
    assert shelf.cancel("E1.1", order)
    run(shelf, order)  # a runner that was slow to start
    (found,) = shelf.runs("E1.1")
    assert found.result
    assert found.result.outcome == Outcome.CANCELLED
    assert not found.touched
    assert not list(tmp_path.rglob("effect"))
    shelf.release()


def test_what_is_at_work_or_done_cannot_be_cancelled(tmp_path: Path) -> None:
    shelf = StateStore(tmp_path)
    order = ordered(shelf)
    directory = shelf.directory("E1.1", order)
    lock = locking.taken(directory / "lock")
    assert lock is not None
    assert not shelf.cancel("E1.1", order), "somebody is about to begin it"
    os.close(lock)
    run(shelf, order)
    assert not shelf.cancel("E1.1", order)
    (found,) = shelf.runs("E1.1")
    assert found.good
    shelf.release()


def test_a_run_that_began_and_has_neither_runner_nor_result_is_lost(tmp_path: Path) -> None:
    shelf = StateStore(tmp_path)
    order = ordered(shelf)
    directory = shelf.directory("E1.1", order)
    durable.put(directory / "begun", b"{}")
    lock = locking.taken(directory / "lock")
    assert lock is not None
    assert [one.state for one in shelf.runs("E1.1")] == [State.WORKING]
    os.close(lock)
    assert [one.state for one in shelf.runs("E1.1")] == [State.LOST]
    shelf.release()


def test_a_run_that_ends_while_it_is_looked_at_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = StateStore(tmp_path)
    order = ordered(shelf)
    directory = shelf.directory("E1.1", order)
    durable.put(directory / "begun", b"{}")

    def ends(_lock: int) -> bool:
        """Between the look for a result and the look at the lock."""
        durable.put(directory / "result", b'{"outcome":"ended","code":0}')
        return False

    monkeypatch.setattr(locking, "held_elsewhere", ends)
    assert [one.good for one in shelf.runs("E1.1")] == [True]
    shelf.release()


def test_of_a_life_of_the_machine_before_no_pause_is_left(tmp_path: Path) -> None:
    shelf = StateStore(tmp_path)
    order = ordered(shelf)
    result = b'{"outcome":"ended","code":1,"ended":1e12}'
    durable.put(shelf.directory("E1.1", order) / "result", result)
    (found,) = shelf.runs("E1.1")
    assert found.result
    assert found.result.ended == 0.0
    shelf.release()


def test_an_event_that_comes_back_is_another_case_and_no_name_leads_elsewhere(
    tmp_path: Path,
) -> None:
    shelf = StateStore(tmp_path)
    shelf.put(a_case())
    assert shelf.new_id("E1") == "E1.2"
    for strange in ("../../etc", "", ".", "a/b", "x" * 300, "a\0b", "ü"):
        id = shelf.new_id(strange)
        assert (tmp_path / "cases" / id).parent == tmp_path / "cases"
        shelf.put(a_case(of=event(strange), id=id))
    shelf.release()


def test_those_that_are_done_are_kept_for_a_while(tmp_path: Path) -> None:
    shelf = StateStore(tmp_path)
    done = [
        msgspec.structs.replace(a_case(id=f"E{n}.1"), closed=BEGINNING + timedelta(seconds=n))
        for n in range(KEPT_CASES + 2)
    ]
    for case in done:
        shelf.close(case)
    now = BEGINNING + timedelta(hours=1)
    assert {case.id for case in shelf.prune(done, now)} == {"E0.1", "E1.1"}
    assert len(shelf.cases()) == KEPT_CASES
    assert len(shelf.prune(shelf.cases(), now + KEPT_FOR)) == KEPT_CASES
    assert shelf.cases() == []
    shelf.release()
