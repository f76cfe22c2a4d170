"""Writes docs/reference/openapi.json anew: the document that the API serves."""

from __future__ import annotations

import msgspec

from forewarn.testing import SAMPLE, Service
from helpers.control_api import ask
from helpers.paths import ROOT

PUBLISHED = ROOT / "docs" / "reference" / "openapi.json"


def publish() -> None:
    with Service(SAMPLE, sockets=True) as service:
        served = ask(service, "GET", "/schema/openapi.json").raw
    PUBLISHED.write_bytes(msgspec.json.format(served, indent=1) + b"\n")


if __name__ == "__main__":
    publish()
