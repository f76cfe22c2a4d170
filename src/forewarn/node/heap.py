"""Give memory that is no longer used back to the system, where the C library can be asked to."""

from __future__ import annotations

import ctypes

from forewarn.metadata.limits import Buffered

TRIM_ABOVE = 4 * 1024 * 1024  # bytes that were held for callers: less is not worth the work


def trim_after_use(buffered: Buffered) -> bool:
    """Trim the heap if much was held for callers and most of it has been released since.

    Freed blocks lie between others, and glibc keeps them for itself unless it is told to look.
    """
    if buffered.peak < TRIM_ABOVE or buffered.total > buffered.peak // 4:
        return False
    buffered.peak = buffered.total
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return True
