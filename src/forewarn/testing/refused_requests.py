"""Why a client that sends requests gets no events: how they were answered, and what is wrong with
them, taken from the verdict.

For messages about a client that did not poll: one whose requests are refused is running, and
looking for it elsewhere would be a waste of time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from forewarn.support.text import counted, listing
from forewarn.verdict.rules import RuleName
from forewarn.verdict.verdict import Verdict
from forewarn.wire.requests import EVENTS_PATH

# The rules whose violation makes the endpoint refuse a request.
REFUSING: frozenset[RuleName] = frozenset(
    {
        "missing-header",
        "forwarded",
        "wrong-path",
        "wrong-verb",
        "wrong-query",
        "wrong-version",
        "malformed-approval",
    }
)


def refused_requests(verdict: Verdict, machine: str) -> str:
    """Describe the refused requests of a machine: how many, their statuses, and the most frequent
    mistake. Empty if none was refused."""
    conduct = next((c for c in verdict.conducts if c.machine == machine), None)
    if conduct is None:
        return ""
    refused = {status: count for status, count in conduct.statuses.items() if _refused(status)}
    count, total = sum(refused.values()), sum(conduct.statuses.values())
    if not count:
        return ""
    text = (
        f"{machine} sent {counted(total, 'request')}, {_share(count, total)} ({_counts(refused)})"
    )
    if conduct.faults:
        text += f" by the faults {_counts(conduct.faults)}"
    mistakes = sorted(
        (c for c in verdict.complaints if c.machine == machine and c.rule in REFUSING),
        key=lambda complaint: -complaint.times,
    )
    if not mistakes:
        return text if conduct.polls else f"{text}: none of them was GET {EVENTS_PATH}"
    others = len(mistakes) - 1
    more = f"; and {counted(others, 'other mistake')}, see the verdict" if others else ""
    return f"{text}: {mistakes[0].message}{more}"


def other_pollers(verdict: Verdict, machines: Collection[str]) -> str:
    """Return the names of machines other than these that have polled, as which a client may poll
    by mistake; empty if there are none."""
    others = [c.machine for c in verdict.conducts if c.polls and c.machine not in machines]
    return listing(others) if others else ""


def _refused(status: str) -> bool:
    return not status.startswith(("2", "3"))


def _share(count: int, total: int) -> str:
    if count < total:
        return f"{count:,} of them refused"
    return "all refused" if total > 1 else "which was refused"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(name if count == 1 else f"{name} ×{count:,}" for name, count in counts.items())
