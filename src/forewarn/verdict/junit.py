"""A verdict as JUnit XML, in the form that GitLab, Jenkins and GitHub Actions read.

There is a test case for every event and machine, and one for the polling of every machine. Broken
rules are failures; notes are in `system-out`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from xml.etree import ElementTree as Xml

from forewarn.verdict.rendering import (
    complaint_text,
    conduct_cells,
    course_cells,
    event_line,
)
from forewarn.verdict.rules import WRONG
from forewarn.verdict.values import Complaint, VerdictData

SUITE = "forewarn"
CONDUCT = "conduct"

# Characters that XML 1.0 cannot represent, not even escaped.
_ILLEGAL = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def junit(verdict: VerdictData, name: str = SUITE) -> bytes:
    """Return the verdict as a JUnit XML document."""
    cases: list[Xml.Element] = []
    remaining: dict[tuple[str, str], list[Complaint]] = {}
    for item in verdict.complaints:
        remaining.setdefault((item.machine, item.event), []).append(item)
    for course in verdict.courses:
        complaints = remaining.pop((course.machine, course.event), [])
        details = [event_line(course), "  ".join(course_cells(course))]
        cases.append(_case(course.machine, f"{course.type} {course.event}", complaints, details))
    for conduct in verdict.conducts:
        complaints = remaining.pop((conduct.machine, ""), [])
        cases.append(
            _case(conduct.machine, CONDUCT, complaints, ["  ".join(conduct_cells(conduct))])
        )
    for (machine, event), complaints in remaining.items():
        cases.append(_case(machine, event or CONDUCT, complaints, []))
    failed = sum(case.find("failure") is not None for case in cases)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0"}
    at = datetime.fromtimestamp(_valid_time(verdict.at), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    suites = Xml.Element("testsuites", {"name": _xml_text(name), **counts, "time": "0"})
    attributes = {"skipped": "0", "time": "0", "timestamp": at, "hostname": "localhost"}
    suite = Xml.SubElement(suites, "testsuite", {"name": _xml_text(name), **counts, **attributes})
    suite.extend(cases)
    if verdict.remarks:
        Xml.SubElement(suite, "system-out").text = _xml_text("\n".join(verdict.remarks))
    Xml.indent(suites)
    document: bytes = Xml.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _case(
    machine: str, name: str, complaints: Iterable[Complaint], details: list[str]
) -> Xml.Element:
    names = {"classname": _xml_text(f"{SUITE}.{machine}"), "name": _xml_text(name), "time": "0"}
    case = Xml.Element("testcase", names)
    output = list(details)
    failures = [item for item in complaints if item.severity == WRONG]
    if failures:  # one element only: some tools do not expect several
        rules = ", ".join(dict.fromkeys(item.rule for item in failures))
        failure = Xml.SubElement(
            case, "failure", {"message": _xml_text(f"{rules}: {failures[0].message}")}
        )
        failure.set("type", _xml_text(rules))
        failure.text = _xml_text("\n".join(complaint_text(item) for item in failures))
    output += [complaint_text(item) for item in complaints if item.severity != WRONG]
    if output:
        Xml.SubElement(case, "system-out").text = _xml_text("\n".join(output))
    return case


def _xml_text(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)


def _valid_time(t: float | None) -> float:
    return t if t is not None and 0 <= t < 250_000_000_000 else 0.0
