"""The event loop of libvirt, in a thread of its own: one for the whole process."""

from __future__ import annotations

import functools
import threading

import libvirt


@functools.cache
def run() -> None:
    """Run the loop from now on. Connections that are opened before get neither events nor signs of
    life."""
    libvirt.registerErrorHandler(lambda *_: None, None)  # it prints what it raises as well
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=_run, name="libvirt-events", daemon=True).start()


def _run() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()
