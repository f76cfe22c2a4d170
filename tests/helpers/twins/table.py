"""What finds what: for every buggy twin, its trial in the kit, its scenarios, and their findings.

docs/test/verdict.md refers its readers to this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from helpers.twins.stage import (
    APPROVED_FOREIGN,
    IDLE,
    LOST_JOB,
    NOT_APPROVED,
    STOPPED_FOR_NOTHING,
    WORKS_MEANWHILE,
)


class Found(NamedTuple):
    """`by` are the findings that tell the mistake; `besides` are consequences that are found, too.

    Any other finding would accuse the twin of something that it has not done.
    """

    by: tuple[str, ...]
    besides: tuple[str, ...] = ()
    impact: bool = False  # found in a scenario that is run with --impact and --busy-check

    def problem(self, findings: set[str]) -> str:
        """Tell what is missing or too much among the findings; nothing if they are right."""
        missing = set(self.by) - findings
        unjust = findings - set(self.by) - set(self.besides)
        texts = [f"not found: {sorted(missing)}"] if missing else []
        texts += [f"accused of: {sorted(unjust)}"] if unjust else []
        return "; ".join(texts)


class Twin(NamedTuple):
    """One buggy twin. `stops`: it stops polling; `refused`: it never gets a document."""

    trial: str
    kit: Found
    scenarios: Mapping[str, Found] = {}
    stops: bool = False
    refused: bool = False


FAILED = (LOST_JOB, NOT_APPROVED)
UNAPPROVED = (NOT_APPROVED, "no-reaction")
MISSED = (*FAILED, "no-reaction")
SILENT = ("stopped-polling", "no-reaction")

# Expectations of the shipped scenarios.
REBOOT_APPROVED = "restart is approved by web_0, 1 min ahead of NotBefore"
UPDATE_APPROVED = "update is approved by web_0, 1 min ahead of NotBefore"
REBOOT_SEEN = "restart is seen in time"
REBOOT_EARLY = "restart is started, 1 min ahead of NotBefore"
REDEPLOY_APPROVED = "redeploy is approved by one of its own machines, 1 min ahead of NotBefore"
EVICTION_APPROVED = "eviction is approved by web_0 within 25 s"
EVICTION_SEEN = ("eviction is seen in time", "eviction is seen within 5 s")
SHRINKING_APPROVED = "shrinking is approved by one of its own machines within 4 min"
HARDWARE_APPROVED = "repair is approved by db-0, 1 d ahead of NotBefore"
STORM_APPROVED = "storm of web_4 is approved by web_4 within 25 s"
UPDATE_IDLE = "update is carried out on idle machines"
NOT_CRASHED = "the command has not crashed"
IN_BAD_DAYS = (
    "in-between is seen by web_0 within 1 min",
    "sudden is seen by web_0",
    "hasty is seen by web_0",
    "restart is seen in time",
    REBOOT_APPROVED,
    "update is seen in time",
    UPDATE_APPROVED,
)

IGNORED_REBOOT = {"user-reboot": Found((REBOOT_APPROVED,), (REBOOT_EARLY, "no-reaction"))}
CRASHED_IN_BAD_DAYS = {"bad-days": Found((NOT_CRASHED,), (*IN_BAD_DAYS, "gave-up"))}


def _refused(rule: str) -> Twin:
    """A twin whose requests for events are all refused, so that no scenario begins."""
    return Twin(
        "restart",
        Found((rule,), FAILED),
        {"user-reboot": Found((rule,))},
        refused=True,
    )


def _malformed(rule: str) -> Twin:
    """A twin whose approvals are refused."""
    besides = (REBOOT_APPROVED, REBOOT_EARLY, "no-reaction")
    return Twin("restart", Found((rule,), UNAPPROVED), {"user-reboot": Found((rule,), besides)})


TWINS: Mapping[str, Twin] = {
    "omits-header": _refused("missing-header"),
    "uses-wrong-version": _refused("wrong-version"),
    "uses-old-version": Twin(
        "eviction",
        Found(("blind-version",), FAILED),
        {
            "spot-eviction": Found(("blind-version", *EVICTION_SEEN), (EVICTION_APPROVED,)),
            "scale-in": Found(
                ("blind-version", "shrinking is seen in time"), (SHRINKING_APPROVED,)
            ),
        },
    ),
    "uses-proxy": _refused("forwarded"),
    "misspells-path": _refused("wrong-path"),
    "polls-every-minute": Twin(
        "eviction",
        Found(("stopped-polling",), FAILED),
        {
            "spot-eviction": Found(("stopped-polling", *EVICTION_SEEN), (EVICTION_APPROVED,)),
            "short-notice": Found(
                ("stopped-polling", "repair is seen in time"),
                ("repair is approved by web_0 within 50 s",),
            ),
        },
        stops=True,
    ),
    "hammers": Twin("ten-seconds", Found(("hammering",))),
    "retries-at-once": Twin("throttling", Found(("ignored-throttling",))),
    "gives-up": Twin(
        "reset",
        Found(("gave-up",), FAILED),
        {"bad-days": Found(("gave-up",), IN_BAD_DAYS)},
        stops=True,
    ),
    "stops-after-first-event": Twin(
        "two-in-turn",
        Found(("stopped-polling",), FAILED),
        {
            "withdrawn": Found(
                ("stopped-polling", "restart is seen in time"),
                ("restart is approved by web_0, 1 min ahead of NotBefore",),
            ),
            "not-as-announced": Found(
                ("stopped-polling", "restart is approved by web_0 within 14 min"),
                ("no-reaction",),
            ),
        },
        stops=True,
    ),
    "drains-slowly": Twin(
        "restart",
        Found(("stopped-polling",), (*MISSED, "late-approval")),
        {
            "user-reboot": Found(
                ("stopped-polling", REBOOT_APPROVED), (REBOOT_EARLY, "no-reaction", "late-approval")
            )
        },
        stops=True,
    ),
    "dies-of-error-status": Twin(
        "bad-answers",
        Found(("gave-up",), FAILED),
        CRASHED_IN_BAD_DAYS,
        stops=True,
    ),
    "dies-of-bad-answer": Twin(
        "broken-answers",
        Found(("gave-up",), FAILED),
        CRASHED_IN_BAD_DAYS,
        stops=True,
    ),
    "dies-of-timeout": Twin("reset", Found(("gave-up",), FAILED), CRASHED_IN_BAD_DAYS, stops=True),
    "has-no-timeout": Twin("stalled-answer", Found(("no-timeout",)), stops=True),
    "dies-of-empty-not-before": Twin(
        "sudden-failure",
        Found(("stopped-polling",), FAILED),
        {
            "user-reboot": Found((NOT_CRASHED,), ("restart is finished", "stopped-polling")),
            "sudden-failure": Found(
                (NOT_CRASHED,),
                (
                    "failure is finished",
                    "update is seen in time",
                    "update is approved by web_0 within 14 min",
                    UPDATE_IDLE,
                    "update is finished",
                    "stopped-polling",
                ),
            ),
            "failed-host": Found(
                (NOT_CRASHED, "reboot is seen by web_0 within 10 s"),
                ("redeploy is finished", "reboot is finished", "stopped-polling"),
            ),
        },
        stops=True,
    ),
    "dies-of-unknown-type": Twin(
        "eviction",
        Found(("stopped-polling",), MISSED),
        {
            "spot-eviction": Found(
                (NOT_CRASHED,), (EVICTION_APPROVED, "eviction is finished", *SILENT)
            ),
            "scale-in": Found(
                (NOT_CRASHED,), (SHRINKING_APPROVED, "shrinking is finished", *SILENT)
            ),
        },
        stops=True,
    ),
    "takes-error-for-no-events": Twin("interference", Found(("approved-too-early",), (LOST_JOB,))),
    "takes-not-modified-for-no-events": Twin(
        "delay",
        Found(("approved-too-early",), (LOST_JOB,)),
    ),
    "names-no-tag": Twin(
        "restart",
        Found(("never-seen",), FAILED),
        {"user-reboot": Found(("never-seen", REBOOT_SEEN), (REBOOT_APPROVED, REBOOT_EARLY))},
    ),
    "expects-larger-incarnation": Twin(
        "new-incarnation",
        Found(("no-reaction",), FAILED),
        {"bad-days": Found((REBOOT_APPROVED, UPDATE_APPROVED), ("no-reaction",))},
    ),
    "reads-first-event-only": Twin(
        "two-at-once",
        Found(("no-reaction",), FAILED),
        {"storm": Found((STORM_APPROVED,), ("no-reaction",))},
    ),
    "compares-host-name": Twin(
        "restart",
        Found(("no-reaction",), FAILED),
        {
            **IGNORED_REBOOT,
            "one-fault-domain": Found(
                ("own is approved by web_1a2b3c4d within 14 min",), ("no-reaction",)
            ),
        },
    ),
    "compares-substring": Twin(
        "neighbour",
        Found(("approved-for-others",), (APPROVED_FOREIGN, STOPPED_FOR_NOTHING)),
        {"storm": Found(("storm of web_41 is never approved", "approved-for-others"))},
    ),
    "knows-only-new-events": Twin(
        "new-start",
        Found((LOST_JOB,)),
        {"sudden-failure": Found(("approved-too-early", UPDATE_IDLE), impact=True)},
    ),
    "ignores-user-events": Twin("restart", Found(("no-reaction",), FAILED), IGNORED_REBOOT),
    "knows-only-reboot": Twin(
        "redeploy",
        Found(("no-reaction",), FAILED),
        {
            "spot-eviction": Found((EVICTION_APPROVED,), ("no-reaction",)),
            "scale-in": Found((SHRINKING_APPROVED,), ("no-reaction",)),
            "user-redeploy": Found((REDEPLOY_APPROVED,), ("no-reaction",)),
        },
    ),
    "ignores-redeploy": Twin(
        "redeploy",
        Found(("no-reaction",), FAILED),
        {
            "user-redeploy": Found((REDEPLOY_APPROVED,), ("no-reaction",)),
            "degraded-hardware": Found((HARDWARE_APPROVED,), ("no-reaction",)),
        },
    ),
    "ignores-terminate": Twin(
        "deletion",
        Found(("no-reaction",), FAILED),
        {"scale-in": Found((SHRINKING_APPROVED,), ("no-reaction",))},
    ),
    "approves-freeze": Twin(
        "freeze",
        Found(("approved-freeze",), (STOPPED_FOR_NOTHING,)),
        {"live-migration": Found(("migration is never approved", "approved-freeze"))},
    ),
    "approves-everything": Twin(
        "neighbour",
        Found(("approved-for-others",), (APPROVED_FOREIGN,)),
        {
            "user-redeploy": Found(
                ("neighbour is never approved", "approved-for-others"),
                (REDEPLOY_APPROVED, "redeploy is seen in time"),
            ),
            "storm": Found(("storm of web_41 is never approved", "approved-for-others")),
        },
    ),
    "drains-for-others": Twin("neighbour", Found((STOPPED_FOR_NOTHING,))),
    "never-approves": Twin(
        "restart",
        Found(("no-reaction",), (NOT_APPROVED,)),
        {
            **IGNORED_REBOOT,
            "rolling-update": Found(
                ("update is approved by one of its own machines, 1 min ahead of NotBefore",),
                ("no-reaction",),
            ),
            "host-maintenance": Found(
                ("update is approved by one of its own machines within 14 min",),
                ("update is started, 1 min ahead of NotBefore", "no-reaction"),
            ),
        },
    ),
    "approves-at-last-minute": Twin(
        "failing-hardware",
        Found((NOT_APPROVED,)),
        {"degraded-hardware": Found((HARDWARE_APPROVED,), ("no-reaction",))},
    ),
    "approves-before-draining": Twin(
        "impact",
        Found(("approved-too-early",), (LOST_JOB,)),
        {"user-reboot": Found(("approved-too-early",), impact=True)},
    ),
    "approves-again-and-again": Twin("withdrawal", Found(("repeated-approval",))),
    "approves-started": Twin(
        "restart", Found(("late-approval",)), {"user-reboot": Found(("late-approval",))}
    ),
    "approves-withdrawn": Twin(
        "withdrawal",
        Found(("ignored-withdrawal",)),
        {"withdrawn": Found(("ignored-withdrawal",))},
    ),
    "forgets-failed-approval": Twin("failed-approval", Found(UNAPPROVED)),
    "sends-plain-ids": _malformed("malformed-approval"),
    "sends-wrong-id": _malformed("unknown-approval"),
    "approves-with-put": _malformed("wrong-verb"),
    "never-resumes": Twin("withdrawal", Found((IDLE,))),
    "resumes-when-started": Twin(
        "restart",
        Found((WORKS_MEANWHILE,)),
        {"not-as-announced": Found(("approved-too-early",), impact=True)},
    ),
}
