"""What `make lint` checks the portal with: types of the published API, and pinned programs."""

from __future__ import annotations

import json
import re

import msgspec

from helpers.paths import ROOT
from helpers.write_openapi import PUBLISHED
from helpers.write_portal_types import TYPES, portal_types

TOOLS = ROOT / "tools" / "portal"
VENDOR = ROOT / "src/forewarn/portal/vendor/README.md"
LOCK = json.loads((TOOLS / "package-lock.json").read_text())["packages"]


def test_the_types_of_the_portal_are_those_of_the_published_document() -> None:
    published = portal_types(msgspec.json.decode(PUBLISHED.read_bytes()))
    assert TYPES.read_text() == published, (
        "write it anew: PYTHONPATH=tests python -m helpers.write_portal_types"
    )


def test_an_answer_has_the_type_of_the_longest_path_that_it_matches() -> None:
    answers = re.findall(r"Asked extends `(.+?)` \? (\S+) :", TYPES.read_text())
    order = [asked for asked, _ in answers]
    assert dict(answers)["GET /v1/hosts/${string}/explain"] == "HostExplanation"
    assert dict(answers)["GET /v1/hosts"] == "Array<Host>"
    assert order.index("GET /v1/hosts/${string}/explain") < order.index("GET /v1/hosts/${string}")


def test_what_is_installed_has_digests_and_no_address() -> None:
    installed = {path: package for path, package in LOCK.items() if path}
    assert [path for path, package in installed.items() if "resolved" in package] == []
    assert [path for path, package in installed.items() if "integrity" not in package] == []


def test_the_portal_is_checked_with_the_types_of_the_libraries_that_it_contains() -> None:
    vendored = dict(re.findall(r"\| (preact|htm) (\d+\.\d+\.\d+), `dist", VENDOR.read_text()))
    assert set(vendored) == {"preact", "htm"}
    assert {name: LOCK[f"node_modules/{name}"]["version"] for name in vendored} == vendored
