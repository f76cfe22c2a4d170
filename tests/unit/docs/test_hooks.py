"""docs/applications/hooks.md names every kind, every option with its default, and every limit."""

from __future__ import annotations

import re

import msgspec
import pytest

from forewarn.agent.hooks import (
    KINDS,
    contract,
    haproxy,
    kubernetes_api,
    kubernetes_drain,
    log,
    webhook,
    wording,
)
from helpers.paths import ROOT

TEXT = (ROOT / "docs/applications/hooks.md").read_text()


def section(kind: str) -> str:
    return TEXT.split(f"\n### {kind}\n", 1)[1].split("\n### ", 1)[0]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_option_is_documented_with_its_default(kind: str) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section(kind), re.M))
    fields = {field.name: field for field in msgspec.structs.fields(KINDS[kind].options)}
    assert set(rows) == set(fields)
    for name, field in fields.items():
        if isinstance(field.default, str) and field.default:
            assert rows[name] == f'`"{field.default}"`'
    if "stages" in fields:
        assert set(rows["stages"].split(", ")) == KINDS[kind].stages


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        (
            "Size of the JSON on standard input; more is refused",
            f"{contract.MAX_INPUT >> 20} MiB",
        ),
        (
            "Length of a description in logs and notifications; longer ones are cut",
            f"{wording.MAX_DESCRIPTION:,} characters",
        ),
        (
            "Length of a line for syslog; longer ones are cut, but not in the journal",
            f"{log.MAX_LINE:,} bytes",
        ),
        ("Time between two looks at a node and its pods", f"{kubernetes_drain.ROUND:g} s"),
        (
            "Time for the API server of Kubernetes to answer one request",
            f"{kubernetes_api.ANSWER:g} s",
        ),
        (
            "Time to wait for a HAProxy that was running and does not answer, as in a restart",
            f"{haproxy.BACK_WITHIN:g} s",
        ),
        (
            "Requests of one webhook run; the second only if `Retry-After` asks for it",
            f"{webhook.ATTEMPTS}",
        ),
    ],
)
def test_every_limit_is_documented(limit: str, value: str) -> None:
    assert f"| {limit} | {value} |" in TEXT
