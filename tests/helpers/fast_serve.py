"""`forewarn serve` with workers, in which durations pass quickly: for tests only, since a fleet's
service has no such setting. Becomes the supervisor, as `serve` does."""

from __future__ import annotations

import sys
from pathlib import Path

from forewarn.node import settings
from forewarn.node.daemon.become_supervisor import become_supervisor
from forewarn.node.listening.socket_activation import HandedOverSockets

if __name__ == "__main__":
    path, speed = Path(sys.argv[1]), float(sys.argv[2])
    said, made = settings.load(path, {}, with_fleet=False)
    become_supervisor(said, made, HandedOverSockets(), path=path, speed=speed)
