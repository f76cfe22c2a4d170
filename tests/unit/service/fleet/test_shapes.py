"""The published JSON Schema is the one the service reads by, and says no where the service does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from forewarn.node import dev
from forewarn.service.fleet.read import FleetError, parse
from forewarn.service.fleet.shapes import schema, schema_text
from helpers.paths import ROOT

DOCS = ROOT / "docs"
SAMPLE = Path(dev.__file__).with_name("sample-fleet.yaml")

_validator: Any = jsonschema.validators.validator_for(schema())(schema())


def test_the_published_schema_is_up_to_date() -> None:
    assert (DOCS / "reference" / "fleet.schema.json").read_text() == schema_text(), (
        "write it anew: forewarn apply --schema > docs/reference/fleet.schema.json"
    )


def test_the_schema_is_one() -> None:
    type(_validator).check_schema(schema())
    assert all(
        "description" in definition
        for name, definition in schema()["$defs"].items()
        if name.endswith("Entry")
    )


def test_every_key_is_described() -> None:
    for name, definition in schema()["$defs"].items():
        for key, output in definition.get("properties", {}).items():
            assert "description" in output or "$ref" in output, f"{name}.{key}"


def _examples() -> list[str]:
    found = re.findall(r"```yaml\n(.*?)```", (DOCS / "operate" / "fleet.md").read_text(), re.DOTALL)
    assert found
    return [SAMPLE.read_text(), *found]


@pytest.mark.parametrize("text", _examples())
def test_fleets_in_the_documents_are_valid(text: str) -> None:
    _validator.validate(yaml.safe_load(text))
    assert parse(text).machines


GROUP = {"name": "g", "kind": "scale-set", "machines": [{"name": "g_0"}]}


@pytest.mark.parametrize(
    "fleet",
    [
        {},
        {"groups": 3},
        {"groups": [], "foo": 1},
        {"groups": [{"name": "g", "machines": [{"name": "g_0"}]}]},
        {"groups": [{**GROUP, "machines": []}]},
        {"groups": [{**GROUP, "name": "g."}]},
        {"groups": [{**GROUP, "machines": [{"name": "g_0", "vm_id": "x"}]}]},
        {"groups": [{**GROUP, "policy": {"auto_approve": ["Freeze"]}}]},
        {"groups": [{**GROUP, "kind": "heap"}]},
        {"groups": [{**GROUP, "name": "a b"}]},
        {"groups": [{**GROUP, "name": "x" * 81}]},
        {"groups": [{**GROUP, "labels": {"-": "x"}}]},
        {"groups": [{**GROUP, "labels": {"a": 1}}]},
        {"groups": [{**GROUP, "labels": {"a": "b,c"}}]},
        {"groups": [{**GROUP, "policy": {"user_event_limit": 0}}]},
        {"groups": [{**GROUP, "policy": {"auto_approve": ["Rebot"]}}]},
        {"groups": [{**GROUP, "machines": [{"name": "g_0", "update_domain": 1000}]}]},
        {"groups": [{**GROUP, "machines": [{"name": "g_0", "adress": "10.0.0.1"}]}]},
        {"groups": [{**GROUP, "machines": [{"name": 7}]}]},
        {"groups": [], "hosts": [{"nam": "a"}]},
        {"groups": [], "hosts": ["a b"]},
    ],
)
def test_the_service_refuses_what_the_schema_refuses(fleet: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        _validator.validate(fleet)
    with pytest.raises(FleetError):
        parse(yaml.safe_dump(fleet))
