"""Clients in a test on a virtual clock: the good ones come through every trial, and each mistake is
found for the right reason."""

from __future__ import annotations

import shutil

import pytest

from helpers.netns import require
from helpers.twins import clients
from helpers.twins.stage import Stage
from helpers.twins.table import TWINS
from helpers.twins.trials import INTERVALS, POLLS_NEEDED, TRIALS

LEAST_TWINS = 16
PAIRS = [
    (client, trial)
    for client, trial in clients.paired(TRIALS, always=[clients.PLAIN, clients.CLIENT])
    if client != clients.LONG_POLL or trial not in POLLS_NEEDED
]


@pytest.mark.parametrize(("client", "trial"), PAIRS)
def test_a_good_client_passes_trials(client: str, trial: str) -> None:
    if client == clients.SHELL:
        require(shutil.which("curl"), "curl: apt-get install curl")
    with Stage(client, every=INTERVALS.get(trial, clients.EVERY)) as stage:
        TRIALS[trial](stage)
        assert stage.result() == set(), stage.report()


@pytest.mark.parametrize("mistake", TWINS)
def test_a_mistake_is_found_for_the_right_reason(mistake: str) -> None:
    twin = TWINS[mistake]
    every = INTERVALS.get(twin.trial, clients.EVERY)
    persists = "ignored-throttling" in twin.kit.by
    options = {"stops": twin.stops, "refused": twin.refused, "persists": persists}
    with Stage(mistake, every=every, **options) as stage:
        TRIALS[twin.trial](stage)
        problem = twin.kit.problem(stage.result())
        assert not problem, f"{problem}\n{stage.report()}"


def test_every_twin_is_in_the_table() -> None:
    from helpers.twins.mistakes import MISTAKES

    assert list(TWINS) == list(MISTAKES)
    assert len(TWINS) >= LEAST_TWINS
