"""Runs OpenTelemetry's AzureVMResourceDetector, unmodified. It waits 0.2 s for the answer.

run_opentelemetry.py
{"host.name": "…", "host.id": "…", "cloud.region": "…", "azure.vm.scaleset.name": "…", …}
"""

from __future__ import annotations

from opentelemetry.resource.detector.azure.vm import AzureVMResourceDetector  # type: ignore[import-not-found]
from tell import tell

if __name__ == "__main__":
    tell(**AzureVMResourceDetector().detect().attributes)
