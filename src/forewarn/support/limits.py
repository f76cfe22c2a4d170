"""Limits of what a request can contain: plain numbers, which the types of the control API state and
enforce, and decisions rely on."""

from __future__ import annotations

_DAY = 86_400  # seconds

MAX_DESCRIPTION = 1_024  # characters
MAX_TICKET = 256  # characters
MAX_READY_NOTE = 1_024  # characters
MAX_NOTICE_SECONDS = 90 * _DAY
MAX_DURATION_SECONDS = _DAY  # of the impact of an event
MAX_EVENT_MACHINES = 1_000  # named by one request for an event
MAX_CANCELLED = 10_000  # events, in one request

MAX_WINDOWS = 20  # of one rollout, group or maintenance configuration
MAX_BLACKOUTS = 100  # of one group or maintenance configuration

MAX_SELECTED = 1_000  # names and selectors in one field of a selection
MAX_WAVES = 20  # without the canary
MAX_ORDER_LABELS = 8
MAX_AT_ONCE = 1_000  # lanes
MAX_FAILURES = 100_000  # steps
MAX_BAKE_SECONDS = 7 * _DAY
MAX_GATE_TIMEOUT_SECONDS = 7 * _DAY
MAX_LASTS_SECONDS = _DAY

MAX_HALT_NOTE = 1_024  # characters
MAX_HALT_GROUPS = 1_000  # that one halt names

MAX_FAULT_TIMES = 1_000_000  # of `times` and `skip`
MAX_FAULT_BODY = 64 * 1024  # characters
MAX_SEED = 2**63 - 1

MAX_STOP_BEFORE = 100  # moments, of one request to play a clock

MAX_PAGE = 1_000_000  # items in one response, and the default of most lists
MAX_EVENT_PAGE = 1_000  # events in one response, and the default
MAX_HISTORY_PAGE = 1_000  # records in one response
MAX_COMMITS = 1_000  # commits in one response to a long-poll
MAX_CHANGES_WAIT = 60  # seconds that a long-poll lasts at most
MAX_SEQ = 10**18 - 1  # number of a commit
MAX_HOURS = 31 * 24  # a calendar of more than a month is not a picture any more
MAX_REMOVE = 10_000_000  # machines
