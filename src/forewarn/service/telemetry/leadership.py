"""Metrics of a control node among others: whether it decides, for how long yet, and how far behind
it is if it follows."""

from __future__ import annotations

from collections.abc import Iterator

from forewarn.service.telemetry.samples import Sample, gauge
from forewarn.store.port import WARNINGS, Leadership
from forewarn.support import guard


def leadership_readings(leadership: Leadership | None) -> Iterator[Sample]:
    """Yield them also for a service with one control node, which always decides."""
    leads, term, left, cannot, lag, age = 1.0, 0, 0.0, 0.0, 0, 0.0
    if leadership is not None:
        leads, term = float(leadership.held()), leadership.term
        left = max(0.0, leadership.until - guard.boottime())
        cannot = float(bool(leadership.problem()))
        lag, age = leadership.lag()
    for name, help, value in (
        ("leads", "1 if this control node decides, 0 if it follows", leads),
        ("term", "Term in which this control node decides; 0 if it follows, or is alone", term),
        ("lease_seconds", "Time until the lease of this control node runs out", left),
        ("cannot_lead", "1 if something keeps this control node from taking over", cannot),
        ("follower_lag_commits", "Commits that this control node did not know a moment ago", lag),
        ("follower_lag_seconds", "Time since this control node has read the whole log", age),
    ):
        yield gauge(f"forewarn_{name}", help, {(): value})
    warnings = {} if leadership is None else leadership.warnings()
    yield gauge(
        "forewarn_warning",
        "1 if something needs attention although the service is ready, as /readyz reports",
        {(subject,): float(bool(warnings.get(subject))) for subject in WARNINGS},
        "about",
    )
