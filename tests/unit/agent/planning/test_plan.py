"""What the agent plans: in order, in time, undone exactly once, approved only when all is well."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.agent.config.model import STAGES, Hook, Rule
from forewarn.agent.planning import plan as planning
from forewarn.agent.planning import steps
from forewarn.agent.planning.attempts import LOST_ATTEMPTS, UNDO_ATTEMPTS
from forewarn.agent.planning.plan import next_steps
from forewarn.agent.planning.planner import Planner
from forewarn.agent.planning.steps import Approve, Order, Plan, ReportReady, World
from forewarn.agent.state import cases
from helpers.agent_model import BEGINNING, AgentWorld, a_case, event, hook, plan
from helpers.examples import examples

HOOKS = st.builds(
    lambda name, stages, retries, fails, timeout: hook(
        name,
        tuple(stage for stage in STAGES if stage in stages or stage == "prepare"),
        retries=retries,
        if_it_fails=fails,
        timeout=timeout,
    ),
    st.just("?"),
    st.sets(st.sampled_from(STAGES)),
    st.integers(0, 2),
    st.sampled_from(["go on", "stop"]),
    st.sampled_from([5.0, 60.0, 1_200.0]),
)
HAPPENINGS = st.lists(
    st.one_of(
        st.sampled_from(["turn", "turn", "end", "end", "die", "crash"]),
        st.tuples(st.just("wind"), st.sampled_from([0.5, 2.0, 30.0, 400.0])),
        st.tuples(st.sampled_from(["start", "gone"]), st.sampled_from(["E1.1", "E2.1"])),
    ),
    max_size=40,
)


@settings(max_examples=examples(250))
@given(
    hooks=st.lists(HOOKS, min_size=1, max_size=3),
    shared=st.booleans(),
    lead=st.sampled_from([None, 60.0, 600.0]),
    approve=st.sampled_from(["never", "when-done", "coordinated", "user-at-once"]),
    source=st.sampled_from(["User", "Platform"]),
    notice=st.sampled_from([30.0, 900.0, None]),
    happenings=HAPPENINGS,
    data=st.data(),
)
def test_every_promise_is_kept_in_random_courses(
    hooks: list[Hook],
    shared: bool,
    lead: float | None,
    approve: str,
    source: str,
    notice: float | None,
    happenings: list[str | tuple[str, object]],
    data: st.DataObject,
) -> None:
    """Each step is looked at by AgentWorld: never a prepare past NotBefore, nothing done twice,
    undone in reverse, no approval while something failed or hangs; and in the end all is put
    back."""
    named = [msgspec.structs.replace(one, name=f"h{index}") for index, one in enumerate(hooks)]
    others = (
        named[::-1] if shared else [msgspec.structs.replace(h, name=h.name + "b") for h in hooks]
    )
    outcomes = st.sampled_from(["good", "good", "good", "bad", "late", "absent"])
    world = AgentWorld(
        a_case(*named, of=event("E1", notice, source=source), lead=lead, approve=approve),
        a_case(*others, of=event("E2", notice), id="E2.1", lead=lead, approve=approve),
        roll=lambda _: data.draw(outcomes),
    )
    for happening in happenings:
        match happening:
            case "turn":
                world.turn()
            case "die":
                world.turn(starts=False)
            case "end":
                world.end_a_run()
            case "crash":
                world.crash()
            case ("wind", float(seconds)):
                world.wind(seconds)
            case ("start", str(id)):
                world.start(id)
            case ("gone", str(id)):
                world.gone(id)
    world.roll = lambda _: "good"
    world.to_the_end()
    for progress in world.cases_with_runs():
        for one, _ in planning.prepared(progress):
            undos = progress.runs_of(one.name, "undo")
            assert sum(run.succeeded for run in undos) == 1 or len(undos) == UNDO_ATTEMPTS
        for one in progress.case.hooks:
            begun = *progress.runs_of(one.name, "announced"), *progress.runs_of(one.name, "prepare")
            if not any(run.may_have_acted for run in begun):
                assert not progress.runs_of(one.name, "undo")
        for stage in STAGES:
            good = [run.hook for run in progress.runs if run.stage == stage and run.succeeded]
            assert len(good) == len(set(good))


def test_prepares_go_in_order_and_undos_in_reverse() -> None:
    world = AgentWorld(a_case(hook("a"), hook("b"), approve="when-done"))
    while world.turn():
        world.end_a_run()
    assert world.approved == ["E1.1"]
    world.start("E1.1")
    while world.turn():
        world.end_a_run()
    world.to_the_end()
    assert [(stage, name) for _, stage, name in world.orders] == [
        ("prepare", "a"),
        ("prepare", "b"),
        ("started", "a"),
        ("started", "b"),
        ("undo", "b"),
        ("undo", "a"),
        ("finished", "a"),
        ("finished", "b"),
    ]


def test_two_events_that_share_a_hook_are_undone_the_later_first() -> None:
    """Or the first would put back what the second still needs, and the second what is no more."""
    world = AgentWorld(a_case(hook("drain")), a_case(hook("drain"), of=event("E2"), id="E2.1"))
    for _ in range(4):
        world.turn()
        world.end_a_run()
    world.gone("E1.1")
    for _ in range(4):
        world.turn()
        world.end_a_run()
    assert ("E1.1", "withdrawn", "drain") in world.orders  # that need not wait
    assert not any(stage == "undo" for _, stage, _ in world.orders)
    world.to_the_end()
    undos = [case for case, stage, _ in world.orders if stage == "undo"]
    assert undos == ["E2.1", "E1.1"]


def test_an_undo_that_waits_for_another_event_holds_earlier_hooks() -> None:
    """The order has its reasons: the service is started before the server is put back."""
    world = AgentWorld(a_case(hook("server"), hook("unit")))
    while world.turn():
        world.end_a_run()
    world.add(a_case(hook("unit"), of=event("E2"), id="E2.1"))
    while world.turn():
        world.end_a_run()
    world.gone("E1.1")
    for _ in range(6):
        world.turn()
        world.end_a_run()
    assert not any(stage == "undo" for _, stage, _ in world.orders)
    world.to_the_end()
    undos = [(case, name) for case, stage, name in world.orders if stage == "undo"]
    assert undos == [("E2.1", "unit"), ("E1.1", "unit"), ("E1.1", "server")]


def test_while_documents_are_unknown_only_events_that_are_over_go_on() -> None:
    still, over = a_case(hook("a")), cases.end_event(a_case(hook("b"), id="E2.1"), BEGINNING)
    cases_with_runs = [steps.CaseProgress(still), steps.CaseProgress(over)]
    blind = plan(cases_with_runs, World(BEGINNING, 0.0), blind=True)
    assert {step.case for step in blind.steps} == {"E2.1"}
    seen = plan(cases_with_runs, World(BEGINNING, 0.0))
    assert {step.case for step in seen.steps} == {"E1.1", "E2.1"}


def test_a_lead_time_is_waited_for_unless_there_is_less_notice() -> None:
    case = a_case(hook("a"), lead=300.0)
    progress = steps.CaseProgress(case)
    due = BEGINNING + timedelta(seconds=600)
    announced = Order("E1.1", case.hooks[0], "announced", 1, 600)
    assert next_steps(progress, World(BEGINNING, 0.0)) == Plan((announced,), wake_at=due)
    quiet = steps.CaseProgress(a_case(hook("a", ("prepare", "undo")), lead=300.0))
    assert next_steps(quiet, World(BEGINNING, 0.0)) == Plan(wake_at=due)
    assert next_steps(progress, World(due, 0.0)).steps == (
        Order("E1.1", case.hooks[0], "prepare", 1, 298),
    )
    short = steps.CaseProgress(a_case(hook("a"), of=event(notice=30.0), lead=300.0))
    assert len(next_steps(short, World(BEGINNING, 0.0)).steps) == 1


def test_what_was_only_announced_is_undone_without_waiting_for_what_others_have_prepared() -> None:
    later = a_case(hook("a"), of=event("E2", 60.0), id="E2.1", lead=300.0)
    world = AgentWorld(a_case(hook("a"), lead=300.0), later)
    for _ in range(2):
        world.turn()
        world.end_a_run()
    assert [order[:2] for order in world.orders] == [("E1.1", "announced"), ("E2.1", "prepare")]
    world.gone("E1.1")
    world.turn()
    assert world.orders[-1] == ("E1.1", "undo", "a")


def test_a_kind_of_hook_that_separates_events_is_undone_in_any_order() -> None:
    node = Hook(name="node", kind="kubernetes", stages=("prepare", "undo"))
    world = AgentWorld(a_case(node), a_case(node, of=event("E2"), id="E2.1"))
    for _ in range(3):
        world.turn()
        world.end_a_run()
    world.gone("E1.1")
    world.turn()
    assert world.orders[-1] == ("E1.1", "undo", "node")


def test_with_no_time_left_nothing_is_started() -> None:
    progress = steps.CaseProgress(a_case(hook("a"), of=event(notice=2.9), approve="when-done"))
    assert next_steps(progress, World(BEGINNING, 0.0)) == Plan()


def test_an_event_that_is_first_seen_started_is_not_prepared() -> None:
    seen = event(status="Started", not_before=None)
    world = AgentWorld(a_case(hook("a"), of=seen, approve="when-done"))
    world.turn()
    assert world.orders == [("E1.1", "started", "a")]
    world.end_a_run()
    world.to_the_end()
    assert world.orders[1:] == [("E1.1", "finished", "a")]


def test_a_failure_that_stops_keeps_later_hooks_from_being_prepared() -> None:
    rolls = iter(["bad", "bad"])
    world = AgentWorld(
        a_case(hook("a", retries=1, if_it_fails="stop"), hook("b"), approve="when-done"),
        roll=lambda _: next(rolls),
    )
    world.turn()
    world.end_a_run()
    assert not world.turn(), "there is a pause before the second attempt"
    assert world.plan().retry_at == world.guard + 1.0
    world.wind(1.0)
    world.turn()
    world.end_a_run()
    world.wind(60.0)
    assert not world.turn()
    assert [name for _, _, name in world.orders] == ["a", "a"]
    assert not world.approved


def test_a_failure_that_goes_on_prepares_the_rest_but_does_not_approve() -> None:
    rolls = iter(["bad", "good"])
    world = AgentWorld(
        a_case(hook("a"), hook("b"), approve="when-done"), roll=lambda _: next(rolls)
    )
    for _ in range(3):
        world.turn()
        world.end_a_run()
    assert [name for _, _, name in world.orders] == ["a", "b"]
    assert not world.approved


def test_an_undo_that_fails_is_tried_again_and_given_up_in_the_end() -> None:
    world = AgentWorld(a_case(hook("a", ("prepare", "undo"))))
    world.turn()
    world.end_a_run()
    world.roll = lambda _: "bad"
    world.to_the_end()
    assert [stage for _, stage, _ in world.orders] == ["prepare"] + ["undo"] * UNDO_ATTEMPTS


def test_a_run_interrupted_by_the_death_of_the_machine_is_repeated() -> None:
    world = AgentWorld(a_case(hook("a")))
    world.turn()
    world.crash()
    world.turn()
    assert [stage for _, stage, _ in world.orders] == ["prepare", "prepare"]
    for _ in range(5):
        world.crash()
        world.turn()
    assert len(world.orders) == LOST_ATTEMPTS, "not for ever"
    world.to_the_end()
    assert [stage for _, stage, _ in world.orders].count("undo") == 1


def test_a_prepare_under_way_is_stopped_when_the_event_is_withdrawn_and_then_undone() -> None:
    world = AgentWorld(a_case(hook("a")))
    world.turn()
    world.gone("E1.1")
    (step,) = world.plan().steps
    assert isinstance(step, steps.Stop)
    world.to_the_end()
    assert [stage for _, stage, _ in world.orders] == ["prepare", "undo", "withdrawn"]


def test_a_prepare_that_its_runner_did_not_end_in_time_is_stopped_at_not_before() -> None:
    """Its runner's clock stands still while the machine is suspended; the service's does not."""
    world = AgentWorld(a_case(hook("a"), of=event(notice=60.0)))
    world.turn()
    assert world.plan().steps == ()
    world.now += timedelta(seconds=60)
    (step,) = world.plan().steps
    assert isinstance(step, steps.Stop)


def test_a_prepare_that_never_began_is_cancelled_and_not_undone() -> None:
    world = AgentWorld(a_case(hook("a")))
    world.turn(starts=False)
    world.gone("E1.1")
    world.to_the_end()
    assert [stage for _, stage, _ in world.orders] == ["prepare", "withdrawn"]


def test_a_prepare_that_never_began_is_cancelled_when_the_event_starts_or_it_is_too_late() -> None:
    """Its runner may still be on its way: then it must not begin."""
    started = AgentWorld(a_case(hook("a", ("prepare",))))
    started.turn(starts=False)
    started.start("E1.1")
    late = AgentWorld(a_case(hook("a", ("prepare",))))
    late.turn(starts=False)
    late.wind(898.0)
    for world in (started, late):
        (step,) = world.plan().steps
        assert isinstance(step, steps.Cancel)
        world.turn()
        assert not world.turn()


@pytest.mark.parametrize(("source", "approved"), [("User", ["E1.1"]), ("Platform", [])])
def test_user_at_once_approves_events_of_users_only(source: str, approved: list[str]) -> None:
    world = AgentWorld(a_case(hook("a"), of=event(source=source), approve="user-at-once"))
    world.turn()
    assert world.approved == approved


def test_the_first_listed_machine_approves_and_then_the_next() -> None:
    second = msgspec.structs.replace(a_case(approve="coordinated", machine="web_1"))
    progress = steps.CaseProgress(second)
    assert next_steps(progress, World(BEGINNING, 0.0)).steps == (ReportReady("E1.1"),)
    ready = steps.CaseProgress(msgspec.structs.replace(second, ready=BEGINNING))
    turn = BEGINNING + planning.TAKE_OVER
    assert next_steps(ready, World(BEGINNING, 0.0), all_ready=BEGINNING) == Plan(wake_at=turn)
    assert next_steps(ready, World(turn, 0.0), all_ready=BEGINNING).steps == (Approve("E1.1"),)
    first = steps.CaseProgress(
        msgspec.structs.replace(a_case(approve="coordinated"), ready=BEGINNING)
    )
    assert next_steps(first, World(BEGINNING, 0.0), all_ready=BEGINNING).steps == (Approve("E1.1"),)


def test_a_machine_that_is_not_listed_approves_last() -> None:
    peer = steps.CaseProgress(a_case(approve="coordinated", machine="web_9", id="E1.1"))
    assert next_steps(peer, World(BEGINNING, 0.0)).steps == (steps.CheckReadiness("E1.1"),)
    turn = BEGINNING + 2 * planning.TAKE_OVER
    assert next_steps(peer, World(BEGINNING, 0.0), all_ready=BEGINNING) == Plan(wake_at=turn)


def test_the_reason_why_an_event_is_gone_follows_from_what_is_known() -> None:
    case = cases.open_case("E1.1", event(), Rule(name="r"), (), "web_0", BEGINNING, boot="first")
    soon, late = BEGINNING + timedelta(seconds=60), BEGINNING + timedelta(seconds=900)
    started = cases.update_event(case, event(status="Started", not_before=None), soon)
    approved = msgspec.structs.replace(case, approved=BEGINNING)
    unheard = msgspec.structs.replace(case, approving=BEGINNING)
    freeze = msgspec.structs.replace(case, event=event(type="Freeze"))
    assert cases.end_event(case, soon, "first").over == "withdrawn"
    assert cases.end_event(freeze, soon, "second").over == "withdrawn"
    assert cases.end_event(case, soon, "second").over == "finished"
    assert cases.end_event(case, late, "first").over == "finished"
    assert cases.end_event(started, soon, "first").over == "finished"
    assert cases.end_event(approved, soon, "first").over == "finished"
    assert cases.end_event(unheard, soon, "first").over == "finished", (
        "killed before it was answered"
    )


def test_an_event_that_has_started_is_not_approved() -> None:
    late = World(BEGINNING + timedelta(seconds=900), 0.0)
    for approve in ("when-done", "coordinated"):
        assert next_steps(steps.CaseProgress(a_case(approve=approve)), late) == Plan()


def test_a_prepare_that_was_too_late_is_run_if_the_clock_is_set_back() -> None:
    world = AgentWorld(a_case(hook("a")))
    world.now += timedelta(seconds=899)
    assert not world.turn()
    world.now -= timedelta(seconds=600)
    assert world.turn()
    assert world.orders == [("E1.1", "prepare", "a")]


def test_a_prepare_is_started_until_too_little_time_is_left() -> None:
    for late in (timedelta(0), timedelta(microseconds=1)):
        world = AgentWorld(a_case(hook("a")))
        world.now += timedelta(seconds=900 - planning.MARGIN - planning.LEAST) + late
        assert world.turn() != bool(late)


def test_after_the_clock_was_set_back_each_case_is_evaluated_once() -> None:
    planner = Planner()
    planner.update(steps.CaseProgress(a_case(hook("a"))))
    planner.plan(World(BEGINNING + timedelta(seconds=899), 0.0))
    set_back = World(BEGINNING + timedelta(seconds=299), 0.0)
    planner.plan(set_back)
    evaluated = planner.evaluated
    planner.plan(set_back)
    assert planner.evaluated == evaluated


def test_a_released_hook_is_given_to_the_next_event() -> None:
    first, second = a_case(hook("a"), id="E1.1"), a_case(hook("a"), of=event("E2"), id="E2.1")
    planner = Planner()
    for case in (first, second):
        planner.update(steps.CaseProgress(case))
    now = World(BEGINNING, 0.0)
    assert [step.case for step in planner.plan(now).steps] == ["E1.1"]
    assert planner.plan(now).steps == ()
    planner.release("E1.1")
    assert [step.case for step in planner.plan(now).steps] == ["E2.1"]
