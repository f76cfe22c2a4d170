"""Reloads the settings of all processes of a service: the control process first, and the workers
only if it has accepted the new settings.

Only the order is decided here; what a process does with its settings is in `node.daemon.reload`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from forewarn.node.processes.child import Child

RELOAD_WITHIN = 60.0  # seconds after which a reload is reported as done, even if it is not


class ReloadAll:
    """A reload of all processes. A request that arrives during a reload is carried out after it.

    `on_begin` and `on_end` are called when a reload begins and ends.
    """

    def __init__(
        self,
        control: Child,
        workers: Sequence[Child],
        on_begin: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._control = control
        self._workers = workers
        self._on_begin = on_begin
        self._on_end = on_end
        self._requested = False
        self._unsent: set[Child] = set()  # still to be sent SIGHUP
        self._pending: set[Child] = set()  # were sent SIGHUP, and have not reported the outcome
        self._workers_turn = False  # the control process has accepted the settings
        self._deadline: float | None = None  # of the reload in progress; None: there is none

    def request(self) -> None:
        self._requested = True

    def advance(self, now: float) -> None:
        """Do what can be done now. Called again and again while all processes are up."""
        if self._requested and not self._unsent and not self._pending:
            self._requested, self._workers_turn = False, False
            self._unsent, self._deadline = {self._control}, now + RELOAD_WITHIN
            self._on_begin()
        self._collect_outcomes()
        # A process that is still starting gets SIGHUP when it is ready: earlier, it could kill it.
        for child in [child for child in self._unsent if child.ready is not None]:
            self._unsent.discard(child)
            self._pending.add(child)
            child.refused = None
            child.send(signal.SIGHUP)
        done = not self._unsent and not self._pending
        if self._deadline is not None and (done or now > self._deadline):
            self._deadline = None
            self._on_end()

    def ended(self, child: Child) -> None:
        """Stop waiting for a process that has ended. It is not asked again, since the reload may
        be what killed it."""
        self._pending.discard(child)

    def _collect_outcomes(self) -> None:
        finished = {child for child in self._pending if child.refused is not None}
        self._pending -= finished
        if self._control in finished and not self._control.refused and not self._workers_turn:
            self._workers_turn = True
            self._unsent = set(self._workers)
