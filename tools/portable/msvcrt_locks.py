"""Windows' `msvcrt.locking`, as far as forewarn uses it, made of the locks of Linux.

It locks bytes from the position of the file, refuses with PermissionError if another open file has
the lock, and lets the same file lock them again only after they were released.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

LK_NBLCK, LK_UNLCK = 2, 0

_FLOCK = struct.Struct("hhqqi")


def locking(file: int, mode: int, size: int) -> None:
    kind = fcntl.F_WRLCK if mode == LK_NBLCK else fcntl.F_UNLCK
    request = _FLOCK.pack(kind, os.SEEK_SET, os.lseek(file, 0, os.SEEK_CUR), size, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from error
