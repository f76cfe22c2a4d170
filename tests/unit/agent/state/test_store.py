"""The state on disk: what survives what, and what is found when somebody comes back to it."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.agent.running.runners import RUNNER
from forewarn.agent.state.runs import Outcome, Run, RunState
from forewarn.agent.state.store import KEPT_CASES, KEPT_FOR, StateStore, StateTaken, StateUnusable
from forewarn.agent.system import durable
from forewarn.support.files.replace import replace
from helpers.agent_model import BEGINNING, a_case, event, hook, order
from helpers.power_cut import PowerCut


def ordered(store: StateStore, *more: str) -> Run:
    command = ("sh", "-c", "echo here > effect", *more)
    case = a_case(msgspec.structs.replace(hook("hook"), commands={"prepare": command}))
    store.save(case)
    return order(store, case, case.hooks[0], "prepare", 1)


def run(store: StateStore, ordered: Run) -> None:
    directory = str(store.run_directory("E1.1", ordered))
    subprocess.run([sys.executable, "-I", "-S", str(RUNNER), directory], check=True)


def test_cases_are_found_as_they_were_left(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state")
    case = a_case(hook("a"), approve="coordinated", labels={"tier": "web"}, lead=5.0)
    store.save(case)
    order(store, case, case.hooks[0], "prepare", 1)
    store.release()
    again = StateStore(tmp_path / "state")
    assert again.load_cases() == [case]
    (found,) = again.runs(case.id)
    assert (found.hook, found.stage, found.attempt, found.state) == ("a", "prepare", 1, "ordered")
    later = order(again, case, case.hooks[0], "undo", 1)
    assert later.number == found.number + 1
    again.release()


def test_cases_and_orders_survive_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StateStore(tmp_path / "state")
    power_cut = PowerCut(monkeypatch)
    ordered(store)
    files = [*(tmp_path / "state").rglob("case"), *(tmp_path / "state").rglob("order")]
    assert [file.name for file in files] == ["case", "order"]
    for file in files:
        assert power_cut.left(file) == file.read_bytes()
    store.release()


def test_a_directory_has_one_agent(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    with pytest.raises(StateTaken, match="another agent"):
        StateStore(tmp_path)
    store.release()
    StateStore(tmp_path).release()


def test_a_directory_has_one_agent_even_if_a_hook_removes_the_lock(tmp_path: Path) -> None:
    first = StateStore(tmp_path / "state")
    (tmp_path / "state" / "lock").unlink()
    with pytest.raises(StateTaken):
        StateStore(tmp_path / "state")
    first.release()
    StateStore(tmp_path / "state").release()


def test_a_command_that_removes_the_lock_of_its_run_still_counts_as_running(
    tmp_path: Path,
) -> None:
    store = StateStore(tmp_path / "state")
    removed, go_on = tmp_path / "removed", tmp_path / "go-on"
    os.mkfifo(removed)
    os.mkfifo(go_on)
    script = f"rm {store.state}/cases/*/runs/*/lock; echo > {removed}; cat {go_on}"
    case = a_case(msgspec.structs.replace(hook("hook"), commands={"prepare": ("sh", "-c", script)}))
    store.save(case)
    run = order(store, case, case.hooks[0], "prepare", 1)
    directory = str(store.run_directory("E1.1", run))
    with subprocess.Popen([sys.executable, "-I", "-S", str(RUNNER), directory]):
        removed.read_text()
        (working,) = store.runs("E1.1")
        go_on.write_text("")
    assert working.state == RunState.RUNNING
    (ended,) = store.runs("E1.1")
    assert (ended.state, ended.result and ended.result.code) == (RunState.DONE, 0)
    store.release()


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateUnusable, match="file"):
        StateStore(tmp_path / "file" / "state")


@pytest.mark.parametrize("which", [".", "cases"])
def test_a_directory_that_others_can_write_is_refused(tmp_path: Path, which: str) -> None:
    StateStore(tmp_path / "state").release()
    (tmp_path / "state" / which).chmod(0o777)
    with pytest.raises(StateUnusable, match="writable by everyone"):
        StateStore(tmp_path / "state")


def test_saved_values_of_a_hook_stay_if_its_undo_was_given_up(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    case = a_case(hook("a"), hook("b"))
    store.save(case)
    for one in case.hooks:
        order(store, case, one, "prepare", 1)
    store.close(case, ["b"])
    assert [path.name for path in (tmp_path / "hooks" / case.id).iterdir()] == ["b"]
    store.release()


def test_incomplete_cases_are_removed_and_unreadable_ones_reported(
    tmp_path: Path,
) -> None:
    store = StateStore(tmp_path)
    store.save(a_case())
    (tmp_path / "cases" / "half.1").mkdir()
    (tmp_path / "cases" / "spoilt.1").mkdir()
    (tmp_path / "cases" / "spoilt.1" / "case").write_text('{"id":')
    assert [case.id for case in store.load_cases()] == ["E1.1"]
    (reported,) = store.unreadable
    assert "spoilt.1" in reported
    assert {path.name for path in (tmp_path / "cases").iterdir()} == {"E1.1", "spoilt.1"}
    store.release()


def test_a_run_without_an_order_is_ignored(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    run = ordered(store)
    (store.run_directory("E1.1", run) / "order").unlink()
    for strange in ("something else", "000009.sometime.1.hook"):
        (store.run_directory("E1.1", run).parent / strange).mkdir()
    store.release()
    store = StateStore(tmp_path)
    assert store.runs("E1.1") == ()
    store.release()


def test_a_cancelled_run_never_starts(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    known = ordered(store)
    assert store.cancel("E1.1", known)
    run(store, known)  # a runner that was slow to start
    (found,) = store.runs("E1.1")
    assert found.result
    assert found.result.outcome == Outcome.CANCELLED
    assert not found.may_have_acted
    assert not list(tmp_path.rglob("effect"))
    store.release()


def test_a_run_that_has_started_cannot_be_cancelled(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    known = ordered(store)
    directory = store.run_directory("E1.1", known)
    lock = durable.try_lock(directory / "lock")
    assert lock is not None
    assert not store.cancel("E1.1", known), "somebody is about to begin it"
    os.close(lock)
    run(store, known)
    assert not store.cancel("E1.1", known)
    (found,) = store.runs("E1.1")
    assert found.succeeded
    store.release()


def test_a_run_that_began_and_has_neither_runner_nor_result_is_lost(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    known = ordered(store)
    directory = store.run_directory("E1.1", known)
    replace(directory / "begun", b"{}")
    lock = durable.try_lock(directory / "lock")
    assert lock is not None
    assert [one.state for one in store.runs("E1.1")] == [RunState.RUNNING]
    os.close(lock)
    assert [one.state for one in store.runs("E1.1")] == [RunState.LOST]
    store.release()


def test_a_run_that_ends_while_it_is_looked_at_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StateStore(tmp_path)
    known = ordered(store)
    directory = store.run_directory("E1.1", known)
    replace(directory / "begun", b"{}")

    def ends(_lock: int) -> bool:
        """Between the look for a result and the look at the lock."""
        replace(directory / "result", b'{"outcome":"ended","code":0}')
        return False

    monkeypatch.setattr(durable, "is_open_file_locked", ends)
    assert [one.succeeded for one in store.runs("E1.1")] == [True]
    store.release()


def test_a_result_from_before_a_reboot_causes_no_pause(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    known = ordered(store)
    result = b'{"outcome":"ended","code":1,"ended":1e12}'
    replace(store.run_directory("E1.1", known) / "result", result)
    (found,) = store.runs("E1.1")
    assert found.result
    assert found.result.ended == 0.0
    store.release()


def test_a_repeated_event_is_another_case_and_names_cannot_leave_the_directory(
    tmp_path: Path,
) -> None:
    store = StateStore(tmp_path)
    store.save(a_case())
    assert store.new_case_id("E1") == "E1.2"
    for strange in ("../../etc", "", ".", "a/b", "x" * 300, "a\0b", "ü"):
        id = store.new_case_id(strange)
        assert (tmp_path / "cases" / id).parent == tmp_path / "cases"
        store.save(a_case(of=event(strange), id=id))
    store.release()


def test_closed_cases_are_kept_for_a_while(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    done = [
        msgspec.structs.replace(a_case(id=f"E{n}.1"), closed=BEGINNING + timedelta(seconds=n))
        for n in range(KEPT_CASES + 2)
    ]
    for case in done:
        store.close(case)
    now = BEGINNING + timedelta(hours=1)
    assert {case.id for case in store.prune(done, now)} == {"E0.1", "E1.1"}
    assert len(store.load_cases()) == KEPT_CASES
    assert len(store.prune(store.load_cases(), now + KEPT_FOR)) == KEPT_CASES
    assert store.load_cases() == []
    store.release()
