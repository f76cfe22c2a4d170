"""A worker that does a long job in steps, and saves its state before its machine is disturbed."""

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

METADATA = os.environ.get("FOREWARN_METADATA", "http://169.254.169.254")
EVERY = 1  # second between two polls


class Worker:
    def __init__(self, metadata, checkpoint):
        self.metadata = metadata
        self.checkpoint = checkpoint
        self.step = int(checkpoint.read_text()) if checkpoint.exists() else 0
        self.draining = False
        self.approved = set()
        self.name = self.ask("instance/compute/name?api-version=2021-02-01&format=text")

    def tick(self):
        """Check the events, then do a step of the job unless the worker is draining."""
        self.look()
        if not self.draining:
            self.step += 1

    def look(self):
        events = self.events()
        if events is None:
            return
        mine = [event for event in events if self.name in event["Resources"]]
        serious = [event for event in mine if event["EventType"] != "Freeze"]
        if serious and not self.draining:
            self.drain()
        self.draining = bool(serious)
        for event in serious:
            if event["EventStatus"] == "Scheduled" and event["EventId"] not in self.approved:
                self.approve(event)

    def drain(self):
        self.draining = True
        self.checkpoint.write_text(str(self.step))

    def events(self):
        """Return the current events, or None if the endpoint gave no usable answer."""
        try:
            return json.loads(self.ask("scheduledevents?api-version=2020-07-01"))["Events"]
        except (OSError, HTTPException, ValueError, KeyError):
            return None

    def approve(self, event):
        """Approve an event. If the request fails, the next poll repeats it."""
        body = {"StartRequests": [{"EventId": event["EventId"]}]}
        with suppress(OSError, HTTPException):
            self.ask("scheduledevents?api-version=2020-07-01", json.dumps(body).encode())
            self.approved.add(event["EventId"])

    def ask(self, path, body=None):
        request = Request(f"{self.metadata}/metadata/{path}", body, {"Metadata": "true"})
        with urlopen(request, timeout=5) as answer:
            return answer.read().decode()


def main():
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    worker = Worker(METADATA, Path(sys.argv[1]))
    while not over.is_set():
        worker.tick()
        over.wait(EVERY)
    worker.drain()


if __name__ == "__main__":
    main()
