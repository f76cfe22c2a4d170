"""All processes of a service read their settings anew: control first, and the workers only if it
could use what it read. Here is who is told when, and when it is over; what a process makes of its
settings is its own affair.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from forewarn.node.processes.child import Child

REREAD_WITHIN = 60.0  # seconds after which whoever asked for it is told that it is over, regardless


class ReloadAll:
    """`begun` and `over` are for whoever asked. What is asked for in the meantime comes after."""

    def __init__(
        self,
        control: Child,
        workers: Sequence[Child],
        begun: Callable[[], None],
        over: Callable[[], None],
    ) -> None:
        self._control = control
        self._workers = workers
        self._begun = begun
        self._over = over
        self._wanted = False
        self._owed: set[Child] = set()  # who has yet to be told
        self._awaited: set[Child] = set()  # who was told, and has not said what came of it
        self._with_workers = False  # is it their turn?
        self._until: float | None = None  # when to give up; None: nobody waits for it

    def ask(self) -> None:
        self._wanted = True

    def look(self, now: float) -> None:
        """Again and again, while all is up."""
        if self._wanted and not self._owed and not self._awaited:
            self._wanted, self._with_workers = False, False
            self._owed, self._until = {self._control}, now + REREAD_WITHIN
            self._begun()
        self._hear()
        # One that is still starting is told when it is ready: it could die of it.
        for child in [child for child in self._owed if child.ready is not None]:
            self._owed.discard(child)
            self._awaited.add(child)
            child.refused = None
            child.send(signal.SIGHUP)
        if self._until is not None and (now > self._until or not (self._owed or self._awaited)):
            self._until = None
            self._over()

    def ended(self, child: Child) -> None:
        """It will not say any more. (Nor is it told again: it may have died of it.)"""
        self._awaited.discard(child)

    def _hear(self) -> None:
        heard = {child for child in self._awaited if child.refused is not None}
        self._awaited -= heard
        if self._control in heard and not self._control.refused and not self._with_workers:
            self._with_workers = True
            self._owed = set(self._workers)
