"""How a driver reports: one JSON object per line, at once."""

from __future__ import annotations

import json
import sys


def tell(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
