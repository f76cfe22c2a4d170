"""The number of files that a node keeps open, and its adjustment to a system that allows fewer.

Guests come first: operators get the connections that guests do not need, and part of the reserve.
"""

from __future__ import annotations

import contextlib

import msgspec

from forewarn.control.server.connections import MAX_OPERATOR_CONNECTIONS
from forewarn.node.config import Config

SPARE_FILES = 256  # for the state file, the control API and files that are open for a moment
SPARE_FOR_OPERATORS = 128  # the part of SPARE_FILES for connections to the control API
MIN_OPERATOR_CONNECTIONS = 16  # even if fewer files are left


def files_for_guests(config: Config) -> int:
    """Return how many files are open when guests use all connections that they are allowed."""
    return config.limits.max_connections + _spare(config)


def fit_to_open_files(config: Config) -> tuple[Config, str]:
    """Raise the limit of open files as far as needed and allowed, and return the configuration
    with as many connections as that permits, and a note for the operator if guests get fewer."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return config, ""
    allowed, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    apis = 1 if config.arm is None else 2  # for operators, each with connections of its own
    wanted = files_for_guests(config) + apis * MAX_OPERATOR_CONNECTIONS
    if resource.RLIM_INFINITY != allowed < wanted:
        raised = wanted if hard_limit == resource.RLIM_INFINITY else min(wanted, hard_limit)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard_limit))
            allowed = raised
    if allowed == resource.RLIM_INFINITY or allowed >= wanted:
        return config, ""
    spare = _spare(config)
    guests, note = config.limits.max_connections, ""
    available = max(allowed // 2, allowed - spare)
    if available < guests:
        note = (
            f"note: the system allows {allowed} open files, so there is room for {available}"
            f" connections, not {guests}; raise it with ulimit -n or LimitNOFILE="
        )
        guests = available
    limits = msgspec.structs.replace(config.limits, max_connections=guests)
    left = allowed - guests - spare + SPARE_FOR_OPERATORS
    operators = min(max(left // apis, MIN_OPERATOR_CONNECTIONS), MAX_OPERATOR_CONNECTIONS)
    return msgspec.structs.replace(config, limits=limits, operator_connections=operators), note


def _spare(config: Config) -> int:
    return SPARE_FILES + config.driver.options.open_files()
