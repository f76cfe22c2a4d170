"""Runs dask-cloudprovider's AzurePreemptibleWorkerPlugin in a real dask worker, unmodified.

Two workers and their scheduler run in this guest. The one called "spot" carries the plugin and
holds a piece of data; when the plugin closes it gracefully, the data has moved to the other.

    run_dask.py [POLL_SECONDS]
    {"ready": true} → {"closed": "spot", "data_survived": true}
"""

from __future__ import annotations

import asyncio
import sys

import dask  # type: ignore[import-not-found]
from dask_cloudprovider.azure import AzurePreemptibleWorkerPlugin  # type: ignore[import-not-found]
from distributed import Client, Scheduler, Worker  # type: ignore[import-not-found]
from tell import tell


async def main(poll_seconds: float) -> None:
    async with (
        Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler,
        Worker(scheduler.address, name="spot", dashboard=False) as spot,
        Worker(scheduler.address, name="other", dashboard=False),
        Client(scheduler.address, asynchronous=True) as client,
    ):
        data = await client.scatter("precious", workers=[spot.address])
        plugin = AzurePreemptibleWorkerPlugin(poll_interval_s=poll_seconds)
        await spot.plugin_add(plugin=plugin, name="preemptible")
        tell(ready=True)
        await spot.finished()
        tell(closed="spot", data_survived=await data.result() == "precious")


if __name__ == "__main__":
    with dask.config.set({"distributed.worker.use-file-locking": False}):
        asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0))
