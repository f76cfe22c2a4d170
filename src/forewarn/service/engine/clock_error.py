"""By how much a clock that follows another one may be wrong, as far as that is measured.

Who asks another process for its time knows that it was read before the answer came, and after the
question was sent. All answers together say where the other clock is, compared with the kernel's
here, which both of them follow. If one contradicts the others, the other clock was set, or another
one is followed, or they differ in speed; then the measurement begins anew.
"""

import math

from forewarn.core.time import SECOND, Time


class ClockError:
    """Differences are microseconds by which a clock is ahead of the kernel's."""

    def __init__(self, since: Time, difference: int) -> None:
        self.since = since  # when the measurement began, by the clock that may be wrong
        self._other_least, self._other_most = -math.inf, math.inf
        self._shown = difference  # at present
        self.forget_shown()

    @property
    def seconds(self) -> float:
        """The most by which what was shown since then was wrong; infinite: nothing is known."""
        return max(self._most - self._other_least, self._other_most - self._least) / SECOND

    def forget_shown(self) -> None:
        """Leave out what was shown before."""
        self._least = self._most = self._shown

    def shows(self, difference: int) -> None:
        self._shown = difference
        self._least, self._most = min(self._least, difference), max(self._most, difference)

    def measured(self, least: int, most: int, now: Time) -> None:
        """Take an answer, by which the difference of the other clock is between these."""
        if most < self._other_least or self._other_most < least:
            self.since = now
            self._other_least, self._other_most = -math.inf, math.inf
            self.forget_shown()
        self._other_least = max(self._other_least, least)
        self._other_most = min(self._other_most, most)
