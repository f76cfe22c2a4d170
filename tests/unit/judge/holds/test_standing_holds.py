"""Whatever holds an event: a service that waits for it is never accused, and one that does not
wait is, by the rule that it breaks."""

from dataclasses import dataclass

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from forewarn.judge import judge
from helpers.examples import examples
from helpers.judge_traces import T0, A, Recording, event, started

NOTICE = 15  # minutes
LAST = 45  # minute of a recording
WAITS = 3  # minutes after which a start is late

Minutes = frozenset[int]


@dataclass(frozen=True)
class Held:
    """The minutes in which each thing holds the event."""

    halted: Minutes
    closed: Minutes
    uninformed: Minutes

    def rules(self, minute: int) -> set[str]:
        return {
            rule
            for rule, minutes in (
                ("started-while-halted", self.halted),
                ("started-outside-window", self.closed),
                ("started-uninformed", self.uninformed),
            )
            if minute in minutes
        }


@st.composite
def minutes(draw: st.DrawFn) -> Minutes:
    """A few spans of minutes."""
    spans = draw(st.lists(st.tuples(st.integers(NOTICE - 5, LAST), st.integers(1, 15)), max_size=3))
    return frozenset(minute for begin, length in spans for minute in range(begin, begin + length))


helds = st.builds(Held, minutes(), minutes(), minutes())


def recorded(held: Held, start: int, stop: int, lines: bool) -> Recording:
    """A host is maintained from minute `start` on; it is asked for twice a minute until `stop`."""
    recording = Recording().hosts(T0 - 9, web_0="h")
    joint = {"kind": "joint", "t": T0, "id": "j", "host": "h", "events": {A: "web"}}
    recording.note(joint)
    allowed = [(T0 + 60 * m, T0 + 60 * (m + 1)) for m in range(LAST + 1) if m not in held.closed]
    recording.maintenance(T0, *allowed)
    if lines:
        recording.moved(T0, "raise")
    for minute in (0, *range(NOTICE - 1, stop)):
        t = T0 + 60 * minute
        recording.halts(t, *([{"groups": ["web"]}] if minute in held.halted else []))
        recording.placement(t, web_1="h" if minute in held.uninformed else "g")
        for seconds in (20, 40):
            if (minute, seconds) == (start, 40):
                if lines:
                    recording.moved(t + 30, "start")
                recording.impact(t + 30)
            waits = (minute, seconds) < (start, 40)
            shown = event() if waits else started(event())
            recording.see(t + seconds, 5 if waits else 6, shown)
    return recording


@settings(max_examples=examples(40))
@given(held=helds, lines=st.booleans())
def test_a_start_after_the_hold_is_not_reported(held: Held, lines: bool) -> None:
    start = next((m for m in range(NOTICE, LAST) if not held.rules(m)), LAST)
    judgement = judge(recorded(held, start, min(start + 2, LAST), lines).records)
    assert judgement.ok, judgement.render()


@settings(max_examples=examples(40))
@given(held=helds, lines=st.booleans(), data=st.data())
def test_a_start_during_the_hold_is_reported(held: Held, lines: bool, data: st.DataObject) -> None:
    forbidden = [minute for minute in range(NOTICE, LAST) if held.rules(minute)]
    assume(forbidden)
    start = data.draw(st.sampled_from(forbidden))
    findings = judge(recorded(held, start, start + 1, lines).records).findings
    assert {f.rule for f in findings} - {"late-start"} == held.rules(start)


@settings(max_examples=examples(40))
@given(held=helds, lines=st.booleans())
def test_a_wait_without_a_hold_is_late(held: Held, lines: bool) -> None:
    waits = range(WAITS + 1)
    free = [m for m in range(NOTICE, LAST - WAITS) if not any(held.rules(m + n) for n in waits)]
    assume(free)
    findings = judge(recorded(held, LAST + 1, LAST, lines).records).findings
    assert {finding.rule for finding in findings} == {"late-start"}
