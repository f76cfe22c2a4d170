"""Whatever happens to the lines between control and its nodes: an honest service is not accused,
and one with a mistake is, by the rule that it breaks."""

import pytest

from forewarn.judge import judge
from helpers.hosts_model import World

SEEDS = 30

BROKEN = {
    "starts while disconnected": {"disconnected-impact"},
    "carries out unshown": {"disconnected-impact"},
    "accepts while disconnected": {"disconnected-approved"},
    "forgets its journal": {"disconnected-backwards"},
    "gives no grace": {"grace-start"},
    "joins without what it missed": {"backwards", "came-back", "incarnation-down"},
}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_honest_service_is_not_accused(seed: int) -> None:
    judgement = judge(World(seed).run().records)
    assert judgement.ok, judgement.render()


@pytest.mark.parametrize(("broken", "expected"), BROKEN.items())
def test_a_mistake_is_found(broken: str, expected: set[str]) -> None:
    found: set[str] = set()
    for seed in range(SEEDS):
        found |= {finding.rule for finding in judge(World(seed, broken).run().records).findings}
        if expected <= found:
            return
    pytest.fail(f"only {found or 'nothing'} was found")


def test_without_its_lines_the_service_looks_broken() -> None:
    found: set[str] = set()
    for seed in range(SEEDS):
        records = [line for line in World(seed).run().records if line["kind"] != "disconnected"]
        found |= {finding.rule for finding in judge(records).findings}
        if found >= {"backwards", "came-back", "incarnation-down"}:
            return
    pytest.fail(f"only {found or 'nothing'} was found")
