"""Runs Elastic APM's reader of instance metadata, unmodified. It waits 0.1 s to be connected.

run_elastic_apm.py
{"instance": {"id": "…", "name": "…"}, "region": "…", "provider": "azure", …}
"""

from __future__ import annotations

from elasticapm.utils.cloud import azure_metadata  # type: ignore[import-not-found]
from tell import tell

if __name__ == "__main__":
    tell(**azure_metadata())
