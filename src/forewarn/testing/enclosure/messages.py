"""What an enclosure and its keeper say to each other."""

from __future__ import annotations

import enum

import msgspec


class Network(enum.Enum):
    """What a program inside reaches besides 169.254.169.254."""

    AUTO = "auto"  # all of it where that can be had, else loopback
    FULL = "full"  # all of it, or it is an error
    LOOPBACK = "loopback"  # what listens on this machine's loopback, on its own
    NONE = "none"


class Order(msgspec.Struct, frozen=True):
    target: tuple[str, int]  # who answers on 169.254.169.254:80
    network: Network


class Ready(msgspec.Struct, frozen=True):
    refused: str | None = None
    network: str = ""  # pasta, slirp4netns, loopback or none
    notes: tuple[str, ...] = ()
