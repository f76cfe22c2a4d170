"""Runs New Relic's reader of instance metadata, unmodified. It waits 0.05 s to be connected.

It asks with the oldest api-version there is, and takes the answer only if all four of its fields
are there and not empty.

    run_newrelic.py
    {"location": "…", "name": "…", "vmId": "…", "vmSize": "…"}
"""

from __future__ import annotations

from newrelic.common.utilization import AzureUtilization  # type: ignore[import-not-found]
from tell import tell

if __name__ == "__main__":
    tell(**(AzureUtilization.detect() or {}))
