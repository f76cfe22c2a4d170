"""The signals of the programs that forewarn starts: all have their default action, and none is
blocked, however forewarn itself was started. Only a SIGHUP that is ignored stays so, for `nohup`.

A program inherits what is ignored and blocked. What starts forewarn may ignore signals, as a shell
does for SIGINT and SIGQUIT in a command in the background, and as Python does for SIGPIPE.
"""

from __future__ import annotations

import signal

# The last two cannot be changed.
_UNCHANGED = {"SIGHUP", "SIGKILL", "SIGSTOP"}
# `subprocess` gives these two their default action in what it starts; Python relies on ignoring
# them. Whoever ignores the others may write to a terminal of which it is not in the foreground,
# and what forewarn starts in this way has no terminal.
_NOT_CAUGHT = {"SIGPIPE", "SIGXFSZ", "SIGTTIN", "SIGTTOU", "SIGTSTP"}


def to_reset() -> list[int]:
    """Return the signals that get their default action."""
    return sorted(signal.valid_signals() - _numbers(_UNCHANGED))


def reset() -> None:
    """Prepare this process to execute another program in its place."""
    for number in to_reset():
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def catch_ignored() -> None:
    """Prepare this process to start programs, from its main thread.

    What it ignores has no effect on it either if it is caught, and programs do not inherit that.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where nothing is inherited
        return
    for number in set(to_reset()) - _numbers(_NOT_CAUGHT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _numbers(names: set[str]) -> set[int]:
    return {int(getattr(signal, name)) for name in names if hasattr(signal, name)}
