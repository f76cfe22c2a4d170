"""A bad half hour, drawn: run it, and look at the file it names.

    python examples/timeline.py timeline.html

A reboot that a neighbour approves, a freeze that is sat out, a restart that is withdrawn, an
eviction that nobody sees, an outage, a fault, and a request without its header.
"""

from __future__ import annotations

import sys
from pathlib import Path

from forewarn.testing import Service
from forewarn.testing.timeline import Lanes, html, text, watch
from forewarn.verdict.verdict import Verdict


def half_an_hour() -> tuple[Lanes, Verdict]:
    with Service() as service:
        web = service.scale_set("web", 3)
        spot = service.scale_set("spot", 2, spot=True)
        jumpbox = service.machine("jumpbox")
        lanes = watch(service)

        def ask(times: int) -> None:
            for _ in range(times):
                for machine in (*web, jumpbox):
                    machine.get()
                service.clock.advance("10s")

        ask(12)
        spot[1].get()
        reboot = web[0].schedule("Reboot", duration=9)
        web[1].freeze(duration=5)
        service.clock.advance("15s")
        ask(15)
        web[1].approve(reboot)
        ask(12)
        restart = jumpbox.restart()
        ask(10)
        restart.cancel()
        spot[0].evict()
        ask(50)
        service.clock.interrupt("2m")
        service.faults.add("gone", machine="web_2", times=3)
        ask(12)
        jumpbox.get(headers={"Metadata": "no"})
        ask(30)
        web[2].redeploy()
        ask(20)
        return lanes, service.verdict()


def main() -> None:
    lanes, verdict = half_an_hour()
    title = "A bad half hour"
    if len(sys.argv) < 2:
        sys.stdout.write(text(lanes, title))
        return
    Path(sys.argv[1]).write_text(html(lanes, verdict, title), encoding="utf-8")


if __name__ == "__main__":
    main()
