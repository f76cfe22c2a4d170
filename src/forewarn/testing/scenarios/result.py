"""The result of a scenario, as values, text and JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import msgspec

from forewarn.support.text import visible
from forewarn.verdict.verdict import Verdict

EXPECTED_NOTHING = "it expects nothing: the file has no 'expect', so only its steps were checked"


class CommandExit(msgspec.Struct, frozen=True, kw_only=True):
    """How the command under test ended on one machine."""

    machine: str
    """The machine."""
    code: int | None
    """Its exit code; None if it ignored SIGTERM and was killed."""
    terminated: bool
    """Whether it was ended by SIGTERM, because the scenario had ended."""
    killed_by: str = ""
    """The type of the event that took its machine away for good, and the command with it."""
    starts: int = 1
    """How often the command was started."""


class ExpectationResult(msgspec.Struct, frozen=True, kw_only=True):
    """One expectation, and whether it was met."""

    expected: str
    """What was expected, in words."""
    ok: bool
    """Whether it was met."""
    message: str = ""
    """The problem; or, if it is ok, what was not checked."""
    line: int = 0
    """Its line in the file."""


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the timeline, and whether it was carried out."""

    line: int
    """Its line in the file."""
    step: str
    """What it does, such as `restart web_0`."""
    at: float | None = None
    """When it was carried out, in seconds since the start; None if it was never due."""
    refused: str = ""
    """Why the service refused it; empty if it did not."""
    why_not: str = ""
    """Why it was never due; empty if it was."""
    notes: tuple[str, ...] = ()
    """What the service remarked about it."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of playing a scenario."""

    scenario: str
    """The name of the scenario."""
    about: str = ""
    """What it is about."""
    expectations: tuple[ExpectationResult, ...] = ()
    """The expectations, and whether each was met."""
    steps: tuple[StepResult, ...] = ()
    """The steps of the timeline, and whether each was carried out."""
    problems: tuple[str, ...] = ()
    """The reasons why it was not played to the end."""
    verdict: Verdict = Verdict()
    """What the clients did, and what was wrong with it."""
    ended: tuple[CommandExit, ...] = ()
    """How the command under test ended on each machine, if there was one."""
    seconds: float = 0.0
    """How long it took on the service's clock."""
    took: float = 0.0
    """How long it took in real time, in seconds."""
    lines: tuple[dict[str, Any], ...] = ()
    """The trace."""

    @property
    def ok(self) -> bool:
        """Whether every step was carried out and every expectation was met."""
        return not self.failures

    @property
    def unplayed(self) -> tuple[str, ...]:
        """A sentence for everything that could not be carried out as written."""
        sentences = list(self.problems)
        for played in self.steps:
            where = f"line {played.line}: {played.step}"
            if played.refused:
                sentences.append(f"{where} was refused: {played.refused}")
            elif played.at is None:
                sentences.append(f"{where} never happened: {played.why_not}")
        return tuple(sentences)

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence for every step and every expectation that has failed."""
        return self.unplayed + tuple(
            f"line {item.line}: expected that {item.expected}: {item.message}"
            for item in self.expectations
            if not item.ok
        )

    def check(self) -> Result:
        """Return the result if the scenario passed.

        Raises:
            AssertionError: It failed; the message says everything that was wrong.
        """
        if not self.ok:
            raise AssertionError(str(self))
        return self

    @property
    def outcome(self) -> str:
        """The outcome in words: `passed` or `failed`, and whether the scenario expected nothing."""
        if not self.ok:
            return "failed"
        return "passed" if self.expectations else f"passed, but {EXPECTED_NOTHING}"

    def as_line(self) -> dict[str, Any]:
        """Return the fields of the line that a trace has for the result."""
        return {
            "scenario": self.scenario,
            "ok": self.ok,
            "problems": self.unplayed,
            "expectations": [
                {"expected": item.expected, "ok": item.ok, "message": item.message}
                for item in self.expectations
            ],
        }

    def __str__(self) -> str:
        lines = [f"scenario {self.scenario}: {self.outcome}"]
        lines += [f"  ✗ {sentence}" for sentence in self.unplayed]
        for item in self.expectations:
            message = f": {item.message}" if item.message else ""
            lines.append(f"  {'✓' if item.ok else '✗'} {item.expected}{message}")
        return "\n".join(map(visible, lines))

    def __repr__(self) -> str:
        return str(self)

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` prints: everything but the trace."""
        return {
            "scenario": self.scenario,
            "about": self.about,
            "ok": self.ok,
            "seconds": self.seconds,
            "took": self.took,
            "failures": self.failures,
            "expectations": [msgspec.structs.asdict(item) for item in self.expectations],
            "timeline": [msgspec.structs.asdict(played) for played in self.steps],
            "commands": [msgspec.structs.asdict(ended) for ended in self.ended],
            "verdict": msgspec.to_builtins(self.verdict),
        }

    def junit(self) -> str:
        """Return a JUnit suite: a test for each expectation, and one for the timeline itself."""
        return _document(self._suite())

    def _suite(self) -> ElementTree.Element:
        cases = [("every step of the timeline is carried out", "; ".join(self.unplayed))]
        cases += [(item.expected, "" if item.ok else item.message) for item in self.expectations]
        failed = sum(bool(message) for _, message in cases)
        nothing_expected = self.ok and not self.expectations
        suite = ElementTree.Element(
            "testsuite",
            name=f"forewarn.{self.scenario}",
            tests=str(len(cases) + nothing_expected),
            failures=str(failed),
            errors="0",
            skipped=str(int(nothing_expected)),
            time=f"{self.took:.3f}",
        )
        for name, message in cases:
            case = self._case(suite, name)
            if message:
                text = visible(message)
                ElementTree.SubElement(case, "failure", message=text).text = text
        if nothing_expected:
            case = self._case(suite, "the expectations are met")
            ElementTree.SubElement(case, "skipped", message=EXPECTED_NOTHING)
        return suite

    def _case(self, suite: ElementTree.Element, name: str) -> ElementTree.Element:
        return ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"forewarn.scenario.{self.scenario}",
            name=visible(name),
            time="0",
        )


def junit_of_all(results: Sequence[Result]) -> str:
    """Return the JUnit suites of several scenarios in one document."""
    suites = ElementTree.Element("testsuites", name="forewarn")
    suites.extend([result._suite() for result in results])
    for total in ("tests", "failures", "errors", "skipped"):
        suites.set(total, str(sum(int(suite.get(total, "0")) for suite in suites)))
    suites.set("time", f"{sum(result.took for result in results):.3f}")
    return _document(suites)


def _document(root: ElementTree.Element) -> str:
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'
