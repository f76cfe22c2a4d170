"""A flag that is set by a signal at any moment of a wait."""

from __future__ import annotations

import signal
import threading

from forewarn.support.signal_flag import SignalFlag


def test_the_flag_can_be_set_at_any_moment_of_a_wait() -> None:
    """A signal comes again and again while the main thread begins and ends waits."""
    flag = SignalFlag()
    before = signal.signal(signal.SIGINT, lambda *_: flag.set())
    going = threading.Event()

    def interrupt() -> None:
        while not going.is_set():
            signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        for _ in range(2_000):
            flag._set = False  # as if it were new
            flag.wait(0.001)
    finally:
        going.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
        flag.close()


def test_a_wait_ends_when_the_flag_is_set() -> None:
    flag = SignalFlag()
    setting = threading.Timer(0.0, flag.set)
    setting.start()
    flag.wait(60.0)
    assert flag.is_set()
    flag.wait(60.0)  # at once
    setting.join()
    flag.close()
