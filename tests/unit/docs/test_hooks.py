"""docs/applications/hooks.md names every kind, every option with its default, and every limit."""

from __future__ import annotations

import re

import msgspec
import pytest

from forewarn.agent.hooks import (
    KINDS,
    contract,
    haproxy,
    haproxy_runtime_api,
    log,
    webhook,
    wording,
)
from helpers.paths import ROOT

TEXT = (ROOT / "docs/applications/hooks.md").read_text()


def section(kind: str) -> str:
    return TEXT.split(f"\n### {kind}\n", 1)[1].split("\n### ", 1)[0]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_option_stands_there_with_its_default(kind: str) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section(kind), re.M))
    fields = {field.name: field for field in msgspec.structs.fields(KINDS[kind].options)}
    assert set(rows) == set(fields)
    for name, field in fields.items():
        if isinstance(field.default, str) and field.default:
            assert rows[name] == f'`"{field.default}"`'
    if "stages" in fields:
        assert set(rows["stages"].split(", ")) == KINDS[kind].stages


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_INPUT", f"{contract.MAX_INPUT >> 20} MiB"),
        ("MARGIN", f"{contract.MARGIN:g} s"),
        ("MAX_DESCRIPTION", f"{wording.MAX_DESCRIPTION:,} characters"),
        ("MAX_LINE", f"{log.MAX_LINE:,} bytes"),
        ("MAX_FACTS", f"{log.MAX_FACTS:,} bytes"),
        ("LEAST", f"{webhook.LEAST:g} s, HAProxy {haproxy_runtime_api.LEAST:g} s"),
        ("FOREVER", f"{contract.FOREVER / 86_400:g} day"),
        ("CHECK_EVERY", f"{haproxy.CHECK_EVERY:g} s"),
        ("BACK_WITHIN", f"{haproxy.BACK_WITHIN:g} s"),
        ("MAX_ANSWER", f"{haproxy_runtime_api.MAX_ANSWER >> 20} MiB"),
        ("ATTEMPTS", f"{webhook.ATTEMPTS}"),
        ("TIMEOUT", f"{haproxy_runtime_api.TIMEOUT:g} s"),
        ("TIMEOUT", f"{log.TIMEOUT:g} s"),
    ],
)
def test_every_limit_stands_there(name: str, value: str) -> None:
    assert re.search(rf"^\| `{name}` \| {re.escape(value)}[ ,|]", TEXT, re.M), (name, value)
