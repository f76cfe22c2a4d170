"""Which machine is disconnected when: nodes on hosts, and machines that move between them."""

from forewarn.judge import judge
from forewarn.judge.reading.disconnected_times import DisconnectedTimes
from forewarn.judge.reading.trace import read_trace
from helpers.judge_traces import T0, A, Recording, event, started


def times(recording: Recording, machine: str = "web_0") -> list[tuple[float, float, bool]]:
    """When the machine is disconnected, in seconds since T0, and whether that is certain."""
    disconnected = DisconnectedTimes(read_trace(recording.records))
    return [(time.begin - T0, time.end - T0, time.certain) for time in disconnected.of(machine)]


INF = float("inf")


def test_named_machines_are_cut_off_from_disconnected_until_joined() -> None:
    recording = (
        Recording()
        .disconnected(T0 + 1, "web_0", "web_1")
        .joined(T0 + 5, "web_0")
        .disconnected(T0 + 9)
    )
    assert times(recording) == [(1, 5, True), (9, INF, True)]
    assert times(recording, "web_1") == [(1, INF, True)]
    assert times(recording, "web_2") == []


def test_the_lines_may_be_written_again() -> None:
    recording = (
        Recording()
        .joined(T0)
        .disconnected(T0 + 1)
        .disconnected(T0 + 2)
        .joined(T0 + 3)
        .joined(T0 + 4)
    )
    assert times(recording) == [(1, 3, True)]


def test_a_node_speaks_for_its_own_host() -> None:
    recording = Recording().disconnected(T0 + 1, host="h1").joined(T0 + 2, host="h2")
    assert times(recording) == [(1, INF, True)]
    assert times(recording.joined(T0 + 3, host="h1")) == [(1, 3, True)]


def test_a_machine_that_has_left_the_host_is_not_cut_off() -> None:
    recording = Recording().hosts(T0, web_0="h1").disconnected(T0 + 1, host="h1")
    assert times(recording) == [(1, INF, True)]
    recording.placement(T0 + 5, web_0="h2").disconnected(T0 + 6, host="h1")  # which cannot know it
    assert times(recording) == [(1, 5, True)]


def test_a_machine_that_may_be_on_another_host_may_be_cut_off() -> None:
    recording = Recording().hosts(T0, web_0="h1").disconnected(T0 + 1, host="h1")
    recording.note({"kind": "placement", "t": T0 + 5, "machines": {"web_0": ["h1", "h2"]}})
    assert times(recording) == [(1, 5, True), (5, INF, False)]


def test_an_operator_may_give_up_a_node() -> None:
    recording = Recording().disconnected(T0 + 1, host="h1").disconnected(T0 + 1, "web_1", host="h2")
    recording.note({"kind": "without-node", "t": T0 + 5, "host": "h1"})
    assert times(recording.joined(T0 + 9)) == [(1, 5, True), (5, 9, False)]
    assert times(recording, "web_1") == [(1, INF, True)]


def test_a_removed_machine_is_not_cut_off() -> None:
    recording = Recording().disconnected(T0 + 1, host="h1").fleet(T0 + 4, machines={})
    assert times(recording) == [(1, 4, True)]


def test_only_answers_of_the_node_that_is_cut_off_are_exempt() -> None:
    """In a live move, two nodes answer a machine."""

    def seen(host: str | None) -> bool:
        recording = (
            Recording()
            .see(T0, 5, event())
            .approve(T0 + 0.5, A)
            .disconnected(T0 + 1, host="h1")
            .see(T0 + 2, 6, started(event()), machine="web_1")
        )
        return judge(recording.see(T0 + 3, 5, event(), host=host).records).ok

    assert seen("h1")
    assert seen(None)
    assert not seen("h2")
