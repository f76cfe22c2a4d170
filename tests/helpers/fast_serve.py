"""`forewarn serve` in which durations pass quickly: for tests only, since a fleet's service has no
such setting."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from forewarn.cli.commands.service_options import run_service
from forewarn.node import settings

if __name__ == "__main__":
    loaded, config = settings.load(Path(sys.argv[1]), {})
    rules = msgspec.structs.replace(config.rules, speed=float(sys.argv[2]))
    run_service(msgspec.structs.replace(config, rules=rules), lambda _: None, loaded)
