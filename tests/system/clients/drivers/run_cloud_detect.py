"""Runs cloud-detect's provider(), unmodified: which cloud does this guest think it is in?

It asks the endpoints of seven clouds at once, most of them at the same address, so a server that
answers a foreign path with something plausible is found out.

    run_cloud_detect.py
    {"provider": "azure"}
"""

from __future__ import annotations

from cloud_detect import provider  # type: ignore[import-not-found]
from tell import tell

if __name__ == "__main__":
    tell(provider=provider(timeout=10))
