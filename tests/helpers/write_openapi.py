"""Writes docs/reference/openapi.json anew: the document that the API serves."""

from __future__ import annotations

from pathlib import Path

import msgspec
from api_kit import ask

from forewarn.testing import SAMPLE, Service

PUBLISHED = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"


def publish() -> None:
    with Service(SAMPLE, sockets=True) as service:
        served = ask(service, "GET", "/schema/openapi.json").raw
    PUBLISHED.write_bytes(msgspec.json.format(served, indent=1) + b"\n")


if __name__ == "__main__":
    publish()
