import pytest
from worker import Worker


@pytest.fixture
def web(forewarn):
    return forewarn.scale_set("web", 2)


@pytest.fixture
def worker(web, tmp_path):
    return Worker(web[0].url, tmp_path / "checkpoint")


def test_it_lets_go_before_a_restart(forewarn, web, worker):
    worker.tick()
    event = web[0].restart()
    assert event.status == "Scheduled"

    worker.tick()
    assert worker.checkpoint.read_text() == "1"
    assert event.approved_by == "web_0"
    assert event.status == "Started"

    forewarn.clock.advance("15m")
    assert event.status == "Finished"
    assert web[0].document()["Events"] == []


def test_its_neighbours_restart_is_none_of_its_business(forewarn, web, worker):
    event = web[1].restart()
    worker.tick()
    forewarn.clock.advance("14m59s")
    assert event.status == "Scheduled"
    with forewarn.during(event):
        assert event.status == "Started"
        worker.tick()
    assert not worker.draining


def test_it_sits_out_a_live_migration(forewarn, web, worker):
    event = web[0].freeze(duration=5)
    worker.tick()
    with forewarn.during(event):
        worker.tick()
    forewarn.verdict().check(strict=True)


def test_it_goes_on_when_nothing_comes_of_it(forewarn, web, worker):
    web[1].fail()
    event = web[0].schedule("Reboot")
    worker.tick()
    assert (worker.draining, event.status) == (True, "Scheduled")

    event.cancel()
    worker.tick()
    assert not worker.draining
    forewarn.verdict().check(strict=True)


KINDS = ["gone", "throttled", "error", "empty", "no-events", "plain", "truncated", "reset"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_bears_a_bad_day(forewarn, web, worker, kind):
    fault = forewarn.faults.add(kind, machine="web_0", times=2)
    event = web[0].restart()
    for _ in range(3):
        worker.tick()
    assert fault.consumed == 2
    assert event.approved_by == "web_0"
    forewarn.verdict().check(strict=True)


def test_it_bears_an_approval_whose_answer_is_lost(forewarn, web, worker):
    event = web[0].restart()
    with forewarn.faults.during("reset", method="POST", takes_effect=True):
        worker.tick()
    worker.tick()
    assert event.status == "Started"
