"""Returns unused memory to the system, where the C library can do so."""

from __future__ import annotations

import ctypes
import sys

from forewarn.metadata.endpoint.limits import BufferLimits

LARGE_BLOCK = 128 * 1024  # bytes, as is glibc's default
_M_MMAP_THRESHOLD = -3  # in malloc.h
TRIM_ABOVE = 4 * 1024 * 1024  # bytes that were buffered for callers; less is not worth the work


def trim_after_use(buffered: BufferLimits) -> bool:
    """Trim the heap if much was buffered for callers and most of it has been released since.

    Freed blocks lie between others, and glibc keeps them unless `malloc_trim` is called.
    """
    if buffered.peak < TRIM_ABOVE or buffered.total > buffered.peak // 4:
        return False
    buffered.peak = buffered.total
    _call("malloc_trim", 0)
    return True


def map_large_blocks() -> None:
    """Have large blocks always mapped by themselves, as glibc does until the first is freed. Each
    line to a node has a block of 256 KiB, of which it uses a page; between smaller blocks it would
    cover pages that others could use."""
    _call("mallopt", _M_MMAP_THRESHOLD, LARGE_BLOCK)


def _call(function: str, *arguments: int) -> None:
    """Call a function of the C library, if it has it."""
    if sys.platform != "win32" and (found := getattr(ctypes.CDLL(None), function, None)):
        found(*arguments)
