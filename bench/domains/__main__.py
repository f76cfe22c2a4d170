"""What it costs to watch the domains of a host, on libvirt's test driver:

    tools/test-hosts .venv .venv-hosts .venv/bin/python -m bench.domains [DOMAINS]

Processor time of the whole process, which neighbours change little. The peer reads the definition
of each domain and does nothing with it.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time  # noqa: TID251 - processor time of all threads
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt

from forewarn.drivers.port import DriverContext, Seen
from forewarn.support import guard
from forewarn_libvirt import events, watch
from forewarn_libvirt.driver import LibvirtDriver
from forewarn_libvirt.options import LibvirtOptions

NODE = "<node><cpu><mhz>6000</mhz></cpu><memory>104857600</memory></node>"
DOMAIN = """
<domain type='test'><name>web-{0}</name><memory unit='MiB'>64</memory><vcpu>2</vcpu><metadata>
<machine xmlns='urn:forewarn:machine:1' group='web' update_domain='0' address='10.0.0.1'/>
</metadata><os><type>hvm</type></os><devices><interface type='bridge'>
<mac address='52:54:00:00:00:01'/><source bridge='br0'/><target dev='tap-{0}'/></interface>
</devices></domain>
"""
ROUNDS, IDLE = 9, 20.0


def main() -> None:
    domains = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    events.run()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "h1.xml")
        file.write_text(NODE)
        connection = libvirt.open(f"test://{file}")
        for number in range(domains):
            connection.defineXML(DOMAIN.format(number)).create()
        peer = _median(lambda: [handle.XMLDesc(0) for handle in connection.listAllDomains()])
        enumeration, idle = asyncio.run(_watched(connection))
    share = (enumeration / watch.ENUMERATE + idle) * 100
    sys.stdout.write(
        f"{domains} domains: an enumeration takes {enumeration * 1000:.0f} ms of processor time, "
        f"{enumeration / peer:.1f} times that of reading the definitions ({peer * 1000:.0f} ms); "
        f"idle, {share:.2f} % of a core\n"
    )


def _median(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(ROUNDS):
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return statistics.median(times)


async def _watched(connection: Any) -> tuple[float, float]:
    """Return the seconds of an enumeration, and those of each second in between."""
    reported = asyncio.Event()

    def report(_seen: Seen) -> None:
        reported.set()

    context = DriverContext(hosts=("h1",))
    driver = LibvirtDriver(LibvirtOptions(uri="test:///"), context, lambda _: connection)
    tasks = guard.Tasks()
    before = time.process_time()
    tasks.start(driver.watch(report), "watch")
    await reported.wait()
    enumerated = time.process_time()
    await guard.pause(IDLE)
    idle = time.process_time() - enumerated
    await tasks.end()
    await driver.aclose()
    return enumerated - before, idle / IDLE


if __name__ == "__main__":
    main()
