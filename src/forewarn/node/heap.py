"""Returns unused memory to the system, where the C library can do so."""

from __future__ import annotations

import ctypes
import sys

from forewarn.metadata.endpoint.limits import BufferLimits

TRIM_ABOVE = 4 * 1024 * 1024  # bytes that were buffered for callers; less is not worth the work


def trim_after_use(buffered: BufferLimits) -> bool:
    """Trim the heap if much was buffered for callers and most of it has been released since.

    Freed blocks lie between others, and glibc keeps them unless `malloc_trim` is called.
    """
    if buffered.peak < TRIM_ABOVE or buffered.total > buffered.peak // 4:
        return False
    buffered.peak = buffered.total
    if sys.platform != "win32" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)
    return True
