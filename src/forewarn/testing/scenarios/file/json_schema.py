"""The JSON Schema of a scenario file, generated from the shapes that read it."""

from __future__ import annotations

from typing import Any

import msgspec

from forewarn.service.fleet import shapes as fleet_shapes
from forewarn.testing.scenarios.file import shapes, timeline_shapes

_REF = "#/$defs/{name}"
_WHEN = [{"required": ["at"]}, {"required": ["after"]}, {"required": ["when-approved"]}]
_ALTERNATIVES = {
    "Evict": ("machine", "group"),
    "Fail": ("machine", "host"),
    "Schedule": ("machine", "machines"),
    "ScaleIn": ("count", "to"),
}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file."""
    expected = [shapes.EventExpected, shapes.ComplaintsExpected, shapes.CommandExpected]
    kinds = [
        shapes.ScenarioEntry,
        timeline_shapes.FaultEntry,
        *timeline_shapes.VERBS.values(),
        *expected,
        fleet_shapes.FleetEntry,
    ]
    _, parts = msgspec.json.schema_components(kinds, ref_template=_REF)
    definitions: dict[str, Any] = dict(parts)
    for kind in timeline_shapes.VERBS.values():
        step = definitions[kind.__name__]
        step["allOf"] = [{"oneOf": _WHEN}]
        if alternatives := _ALTERNATIVES.get(kind.__name__):
            step["allOf"].append({"oneOf": [{"required": [name]} for name in alternatives]})
        step["not"] = {"required": ["at", "delay"]}
    definitions["Rollout"]["anyOf"] = [
        {"required": [name]} for name in ("groups", "labels", "hosts")
    ]
    definitions["EventExpected"]["minProperties"] = 2
    definitions["CommandEntry"]["minProperties"] = 1
    definitions["GroupEntry"]["properties"]["machines"] = {
        "description": "Its machines, or their number.",
        "anyOf": [
            definitions["GroupEntry"]["properties"]["machines"],
            {"type": "integer", "minimum": 1, "maximum": shapes.MAX_COUNT},
            _machines(definitions),
        ],
    }
    scenario = definitions.pop("ScenarioEntry")
    fields = scenario["properties"]
    fields["fleet"] = {**fields["fleet"], "anyOf": [_ref("FleetEntry"), {"type": "string"}]}
    fields["faults"]["items"] = _ref("FaultEntry")
    fields["timeline"]["items"] = {
        "type": "object",
        "required": ["do"],
        "properties": {"do": {"enum": list(timeline_shapes.VERBS)}},
        "oneOf": [_ref(kind.__name__) for kind in timeline_shapes.VERBS.values()],
    }
    fields["expect"]["items"] = {
        "anyOf": [{"const": shapes.NO_COMPLAINTS}, *(_ref(kind.__name__) for kind in expected)]
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **scenario,
        "title": "forewarn scenario file",
        "$defs": definitions,
    }


def _machines(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of machines given by number."""
    common = {k: v for k, v in definitions["MachineEntry"]["properties"].items() if k != "name"}
    return {
        "type": "object",
        "description": "The number of machines, and what they have in common.",
        "required": ["count"],
        "additionalProperties": False,
        "properties": {
            "count": {"type": "integer", "minimum": 1, "maximum": shapes.MAX_COUNT},
            "update_domains": {"type": "integer", "minimum": 1},
            "hosts": {"type": "array", "items": {"type": "string"}},
            **common,
        },
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _REF.format(name=name)}


def schema_text() -> str:
    """Return the JSON Schema of a scenario file as text."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"
