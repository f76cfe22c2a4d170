"""The JSON Schema of a scenario file, made of the entries that read it."""

from __future__ import annotations

from typing import Any

import msgspec

from forewarn.service.fleet import shapes
from forewarn.testing.scenarios.file import shapes as e
from forewarn.testing.scenarios.file import timeline_shapes as d

_REF = "#/$defs/{name}"
_WHEN = [{"required": ["at"]}, {"required": ["after"]}, {"required": ["when-approved"]}]
_EITHER = {
    "Evict": ("machine", "group"),
    "Fail": ("machine", "host"),
    "Schedule": ("machine", "machines"),
    "ScaleIn": ("count", "to"),
}


def schema() -> dict[str, Any]:
    expected = [e.EventExpected, e.ComplaintsExpected, e.CommandExpected]
    kinds = [e.ScenarioEntry, d.FaultEntry, *d.VERBS.values(), *expected, shapes.FleetEntry]
    _, parts = msgspec.json.schema_components(kinds, ref_template=_REF)
    made: dict[str, Any] = dict(parts)
    for kind in d.VERBS.values():
        step = made[kind.__name__]
        step["allOf"] = [{"oneOf": _WHEN}]
        if either := _EITHER.get(kind.__name__):
            step["allOf"].append({"oneOf": [{"required": [name]} for name in either]})
        step["not"] = {"required": ["at", "delay"]}
    made["Rollout"]["anyOf"] = [{"required": [name]} for name in ("groups", "labels", "hosts")]
    made["EventExpected"]["minProperties"] = 2
    made["CommandEntry"]["minProperties"] = 1
    made["GroupEntry"]["properties"]["machines"] = {
        "description": "Its machines; or how many there are.",
        "anyOf": [
            made["GroupEntry"]["properties"]["machines"],
            {"type": "integer", "minimum": 1, "maximum": e.MAX_COUNT},
            _machines(made),
        ],
    }
    top = made.pop("ScenarioEntry")
    fields = top["properties"]
    fields["fleet"] = {**fields["fleet"], "anyOf": [_ref("FleetEntry"), {"type": "string"}]}
    fields["faults"]["items"] = _ref("FaultEntry")
    fields["timeline"]["items"] = {
        "type": "object",
        "required": ["do"],
        "properties": {"do": {"enum": list(d.VERBS)}},
        "oneOf": [_ref(kind.__name__) for kind in d.VERBS.values()],
    }
    fields["expect"]["items"] = {
        "anyOf": [{"const": e.NO_COMPLAINTS}, *(_ref(kind.__name__) for kind in expected)]
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **top,
        "title": "forewarn scenario file",
        "$defs": made,
    }


def _machines(made: dict[str, Any]) -> dict[str, Any]:
    """How many, and what they have in common."""
    alike = {k: v for k, v in made["MachineEntry"]["properties"].items() if k != "name"}
    return {
        "type": "object",
        "description": "How many machines there are, and what they have in common.",
        "required": ["count"],
        "additionalProperties": False,
        "properties": {
            "count": {"type": "integer", "minimum": 1, "maximum": e.MAX_COUNT},
            "update_domains": {"type": "integer", "minimum": 1},
            "hosts": {"type": "array", "items": {"type": "string"}},
            **alike,
        },
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _REF.format(name=name)}


def schema_text() -> str:
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"
