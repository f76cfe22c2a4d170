#!/usr/bin/env python3
"""Steady load: six visitors, each of whom asks again as soon as it is answered, until this program
is told to stop (SIGTERM). Then it says, as JSON, what became of every request.

    load.py HOST:PORT FILE      FILE has the machines and boots that have answered so far
"""

import collections
import http.client
import json
import signal
import sys
import threading
from pathlib import Path

VISITORS = 6
PATIENCE = 10  # seconds for one answer; a later one counts as failed

site, seen_file = sys.argv[1], Path(sys.argv[2])
stop = threading.Event()
lock = threading.Lock()
answered: collections.Counter[str] = collections.Counter()  # by machine and boot
failed: collections.Counter[str] = collections.Counter()  # by what went wrong


def visit() -> None:
    while not stop.is_set():
        connection = http.client.HTTPConnection(site, timeout=PATIENCE)
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            text = answer.read().decode().strip()
            count(answered if answer.status == 200 else failed, text, f"{answer.status}")
        except (OSError, http.client.HTTPException) as error:
            count(failed, "", type(error).__name__)
        finally:
            connection.close()


def count(where: collections.Counter[str], text: str, otherwise: str) -> None:
    with lock:
        key = text if where is answered else otherwise
        where[key] += 1
        if where[key] == 1:
            seen_file.write_text("".join(f"{boot}\n" for boot in answered))


signal.signal(signal.SIGTERM, lambda *_: stop.set())
visitors = [threading.Thread(target=visit) for _ in range(VISITORS)]
for visitor in visitors:
    visitor.start()
for visitor in visitors:
    visitor.join()
json.dump({"answered": answered, "failed": failed}, sys.stdout)
