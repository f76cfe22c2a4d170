"""A verdict as JUnit XML, in the form that GitLab, Jenkins and GitHub's actions read.

A test case for every machine's way through every event, and for every machine one about how it
asked; each rule that was broken there is a failure. Notes are in `system-out`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from xml.etree import ElementTree as Xml

from forewarn.verdict.rendering import (
    complaint,
    conduct_cells,
    course_cells,
    event_line,
)
from forewarn.verdict.rules import WRONG
from forewarn.verdict.values import Complaint, VerdictData

SUITE = "forewarn"
CONDUCT = "conduct"

# What XML 1.0 cannot say at all.
_UNSAYABLE = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def junit(verdict: VerdictData, name: str = SUITE) -> bytes:
    cases: list[Xml.Element] = []
    left: dict[tuple[str, str], list[Complaint]] = {}
    for one in verdict.complaints:
        left.setdefault((one.machine, one.event), []).append(one)
    for course in verdict.courses:
        about = left.pop((course.machine, course.event), [])
        told = [event_line(course), "  ".join(course_cells(course))]
        cases.append(_case(course.machine, f"{course.type} {course.event}", about, told))
    for conduct in verdict.conducts:
        about = left.pop((conduct.machine, ""), [])
        cases.append(_case(conduct.machine, CONDUCT, about, ["  ".join(conduct_cells(conduct))]))
    for (machine, event), about in left.items():
        cases.append(_case(machine, event or CONDUCT, about, []))
    failed = sum(case.find("failure") is not None for case in cases)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0"}
    at = datetime.fromtimestamp(_sane(verdict.at), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    suites = Xml.Element("testsuites", {"name": _said(name), **counts, "time": "0"})
    more = {"skipped": "0", "time": "0", "timestamp": at, "hostname": "localhost"}
    suite = Xml.SubElement(suites, "testsuite", {"name": _said(name), **counts, **more})
    suite.extend(cases)
    if verdict.remarks:
        Xml.SubElement(suite, "system-out").text = _said("\n".join(verdict.remarks))
    Xml.indent(suites)
    made: bytes = Xml.tostring(suites, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def _case(machine: str, name: str, about: Iterable[Complaint], told: list[str]) -> Xml.Element:
    names = {"classname": _said(f"{SUITE}.{machine}"), "name": _said(name), "time": "0"}
    case = Xml.Element("testcase", names)
    said = list(told)
    wrong = [one for one in about if one.severity == WRONG]
    if wrong:  # one element: several are more than some readers expect
        rules = ", ".join(dict.fromkeys(one.rule for one in wrong))
        failure = Xml.SubElement(
            case, "failure", {"message": _said(f"{rules}: {wrong[0].message}")}
        )
        failure.set("type", _said(rules))
        failure.text = _said("\n".join(complaint(one) for one in wrong))
    said += [complaint(one) for one in about if one.severity != WRONG]
    if said:
        Xml.SubElement(case, "system-out").text = _said("\n".join(said))
    return case


def _said(text: str) -> str:
    return _UNSAYABLE.sub("\ufffd", text)


def _sane(t: float | None) -> float:
    return t if t is not None and 0 <= t < 250_000_000_000 else 0.0
