"""The messages between an enclosure and its keeper."""

from __future__ import annotations

import enum

import msgspec


class Network(enum.Enum):
    """What a program inside reaches besides 169.254.169.254."""

    AUTO = "auto"  # the whole network if possible, else loopback
    FULL = "full"  # the whole network, or an error
    LOOPBACK = "loopback"  # only what listens on this machine's loopback
    NONE = "none"


class Request(msgspec.Struct, frozen=True):
    """What the keeper is asked to create."""

    target: tuple[str, int]  # where 169.254.169.254:80 is relayed to
    network: Network
    # Further addresses inside, and where they are relayed to.
    relays: tuple[tuple[tuple[str, int], tuple[str, int]], ...] = ()


class Ready(msgspec.Struct, frozen=True):
    """The network is ready, or `refused` says why it is not."""

    refused: str | None = None
    network: str = ""  # pasta, slirp4netns, loopback or none
    notes: tuple[str, ...] = ()
