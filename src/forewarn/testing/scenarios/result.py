"""What came of a scenario: what was expected and what was found, as values, text and JUnit XML."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import msgspec

from forewarn.support.text import visible
from forewarn.testing.scenarios.engine.check_expectations import Ended, ExpectationResult
from forewarn.verdict.verdict import Verdict


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the timeline, and what came of it."""

    line: int
    says: str  # `restart web_0`
    at: float | None = None  # seconds since the timeline began; None: it never happened
    refused: str = ""
    why_not: str = ""
    notes: tuple[str, ...] = ()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    scenario: str
    about: str = ""
    findings: tuple[ExpectationResult, ...] = ()
    steps: tuple[Played, ...] = ()
    trouble: tuple[str, ...] = ()  # why it could not be played as it is written
    verdict: Verdict = Verdict()
    ended: tuple[Ended, ...] = ()
    seconds: float = 0.0  # of the service's clock
    took: float = 0.0  # real seconds
    lines: tuple[dict[str, Any], ...] = ()  # of the trace

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def expectations(self) -> tuple[ExpectationResult, ...]:
        return self.findings

    @property
    def unplayed(self) -> tuple[str, ...]:
        """What did not go as it is written, whatever was expected."""
        said = list(self.trouble)
        for step in self.steps:
            if step.refused:
                said.append(f"line {step.line}: {step.says} was refused: {step.refused}")
            elif step.at is None:
                said.append(f"line {step.line}: {step.says} never happened: {step.why_not}")
        return tuple(said)

    @property
    def failures(self) -> tuple[str, ...]:
        """All that was wrong, a sentence each."""
        return self.unplayed + tuple(
            f"line {one.line}: expected that {one.expected}: {one.says}"
            for one in self.findings
            if not one.ok
        )

    def check(self) -> Result:
        """Itself, or an AssertionError with all there is to say."""
        if not self.ok:
            raise AssertionError(str(self))
        return self

    def __str__(self) -> str:
        lines = [f"scenario {self.scenario}: {'passed' if self.ok else 'failed'}"]
        lines += [f"  ✗ {said}" for said in self.unplayed]
        for one in self.findings:
            said = f": {one.says}" if one.says else ""
            lines.append(f"  {'✓' if one.ok else '✗'} {one.expected}{said}")
        return "\n".join(map(visible, lines))

    def __repr__(self) -> str:
        """As short as it can be where pytest shows it."""
        return str(self)

    def as_dict(self) -> dict[str, Any]:
        """For programs; without the trace, which has a file of its own."""
        return {
            "scenario": self.scenario,
            "about": self.about,
            "ok": self.ok,
            "seconds": self.seconds,
            "took": self.took,
            "failures": self.failures,
            "expectations": [msgspec.structs.asdict(one) for one in self.findings],
            "timeline": [msgspec.structs.asdict(one) for one in self.steps],
            "commands": [msgspec.structs.asdict(one) for one in self.ended],
            "verdict": msgspec.to_builtins(self.verdict),
        }

    def junit(self) -> str:
        """A test suite: a test for each expectation, and one for the timeline itself."""
        cases = [("the timeline is played", "; ".join(self.unplayed))]
        cases += [(one.expected, "" if one.ok else one.says) for one in self.findings]
        failed = sum(bool(says) for _, says in cases)
        suite = ElementTree.Element(
            "testsuite",
            name=f"forewarn.{self.scenario}",
            tests=str(len(cases)),
            failures=str(failed),
            errors="0",
            skipped="0",
            time=f"{self.took:.3f}",  # a suite of CI adds up what it waited for
        )
        for name, says in cases:
            made = ElementTree.SubElement(
                suite,
                "testcase",
                classname=f"forewarn.scenario.{self.scenario}",
                name=visible(name),
                time="0",
            )
            if says:
                shown = visible(says)
                ElementTree.SubElement(made, "failure", message=shown).text = shown
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(
            suite, encoding="unicode"
        )
