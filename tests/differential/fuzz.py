"""`make fuzz`: cases nobody has thought of, put to both nodes until the time is up.

Guided by what is new: a case that reaches a line of the endpoint for the first time, or gets a
kind of answer that no other got, is kept in `corpus/` and mutated further; `make test` puts every
one of them again. How such a file is written is told in `case.py`. A case that is answered
differently is made as small as it gets, kept, shown, and ends the run with status 1.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import structlog

from differential.case import KEPT, Case, keep, kept, name_of
from differential.cases import named
from differential.guided import Coverage, mutated, signature, smallest
from differential.histories import busy
from differential.pair import Difference, Pair
from forewarn.support import guard

TELL_EVERY = 5.0  # seconds between two lines about how it goes
BATCH = 16  # cases that are put side by side
SMALL = 60.0  # seconds that are spent on making a difference small


class Fuzzer:
    def __init__(self, pair: Pair, folder: Path, dice: random.Random) -> None:
        self.pair = pair
        self.folder = folder
        self.dice = dice
        self.coverage = Coverage()
        self.signatures: set[tuple[object, ...]] = set()
        self.pool: list[Case] = []
        self.count = 0

    def put(self, cases: Sequence[Case]) -> dict[Case, str]:
        """Put these to both nodes; what is new about some of them. Found or Broke is raised."""
        lines, broken = set(self.coverage.lines), len(self.pair.broken)
        self.count += len(cases)
        differences = self.pair.run(self.pair.differences(cases, len(cases)))
        if differences:
            raise Found(differences[0])
        if len(self.pair.broken) > broken:
            raise Broke(cases, self.pair.broken[-1])
        one, other = map(self.pair.learned, self.pair.nodes)
        if one != other:
            raise Broke(cases, f"the services learned different things:\n{one[1:]}\n{other[1:]}")
        if len(cases) > 1 and self.coverage.lines != lines:  # by which of them?
            self.coverage.forget(self.coverage.lines - lines)
            return {case: news for one in cases for case, news in self.put([one]).items()}
        found: dict[Case, str] = {}
        for case, (front, _) in zip(cases, self.pair.received, strict=True):
            if kinds := signature(front) - self.signatures:
                self.signatures |= kinds
                found[case] = "answers that did not follow on each other before"
            if self.coverage.lines != lines:
                found[case] = "a line that was not run before"
        return found

    def learn(self, cases: Iterable[Case]) -> None:
        for case in cases:
            self.put([case])
            self.pool.append(case)

    def step(self) -> None:
        cases = [mutated(self.dice.choice(self.pool), self.pool, self.dice) for _ in range(BATCH)]
        for case, news in self.put(cases).items():
            self.pool.append(case)
            keep(case, news, self.folder)

    def thin(self) -> int:
        """Drop what is kept but adds nothing to the cases written by hand and to shorter ones."""
        dropped = 0
        for case in sorted(kept(self.folder).values(), key=lambda case: len(str(case))):
            if not self.put([case]):
                (self.folder / name_of(case)).unlink(missing_ok=True)
                dropped += 1
        return dropped

    def says(self, seconds: float) -> str:
        return (
            f"{self.count} cases, {self.count / max(seconds, 1e-9):.0f} a second;"
            f" {len(self.pool)} known, {len(self.coverage.lines)} lines run,"
            f" {len(self.signatures)} kinds of answers in a row"
        )


class Found(Exception):
    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.case = difference.case


class Broke(Exception):
    """Something went wrong inside, whatever was answered."""

    def __init__(self, cases: Sequence[Case], what: str) -> None:
        alone = next((case for case in cases if len(cases) > 1 and _failure(case)), None)
        self.case = alone or cases[0]
        all_of_them = "\n".join(map(str, [alone] if alone else cases))
        super().__init__(f"{all_of_them}\n{what}")


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=60.0, help="0: until ctrl-C")
    asked.add_argument("--seed", type=int, default=None)
    asked.add_argument("--corpus", type=Path, default=KEPT)
    asked.add_argument("--thin", action="store_true", help="only drop what adds nothing")
    given = asked.parse_args()
    structlog.configure(processors=[_drop])
    try:
        with Pair(busy) as pair:
            fuzzer = Fuzzer(pair, given.corpus, random.Random(given.seed))
            pair.call(fuzzer.coverage.start)
            try:
                _run(fuzzer, given.seconds, thin=given.thin)
            finally:
                pair.call(fuzzer.coverage.stop)
    except (Found, Broke) as found:
        _say(f"{found}\n\nmaking it smaller ...")
        case = _small(found)
        again = _failure(case) or found
        path = keep(case, "differs", given.corpus)
        _say(f"\n{again}\n\nkept as {path}")
        return 1
    return 0


def _run(fuzzer: Fuzzer, seconds: float, *, thin: bool) -> None:
    since = reported = guard.monotonic()
    fuzzer.learn(named().values())
    if thin:
        _say(f"{fuzzer.thin()} dropped")
        return
    fuzzer.learn(kept(fuzzer.folder).values())
    try:
        while not seconds or guard.monotonic() - since < seconds:
            fuzzer.step()
            if guard.monotonic() - reported > TELL_EVERY:
                reported = guard.monotonic()
                _say(fuzzer.says(reported - since))
    except KeyboardInterrupt:
        pass
    _say(fuzzer.says(guard.monotonic() - since))


def _small(found: Found | Broke) -> Case:
    until = guard.monotonic() + SMALL
    return smallest(
        found.case,
        lambda case: guard.monotonic() < until and type(_failure(case)) is type(found),
    )


def _failure(case: Case) -> Found | Broke | None:
    """What is wrong with the answers to this alone, on nodes that have received nothing else."""
    with Pair(busy) as pair:
        try:
            Fuzzer(pair, KEPT, random.Random(0)).put([case])
        except (Found, Broke) as found:
            return found
    return None


def _drop(*_: object) -> structlog.typing.EventDict:
    raise structlog.DropEvent


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
