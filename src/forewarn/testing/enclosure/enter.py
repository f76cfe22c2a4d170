"""Enters namespaces and executes a program: a script that runs in a process of its own.

`python -I -S enter.py SPEC PROGRAM [ARGUMENT…]`, where SPEC is JSON: the namespaces (open files
and their kinds), the signals to reset, the library to preload, a hosts file, and the file
descriptor on which a failure is reported. It uses only the standard library, so that it starts
quickly.
"""

import ctypes
import errno
import json
import os
import signal
import sys

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000  # MS_BIND, MS_REC, MS_PRIVATE


def main(spec: dict[str, object], argv: list[str]) -> None:
    report = int(str(spec["report"]))
    os.set_inheritable(report, False)  # closed by a successful exec
    try:
        _enter(spec["namespaces"])
        if spec["hosts"]:
            _replace_hosts(str(spec["hosts"]))
        for number in spec["reset"]:  # type: ignore[attr-defined]
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if spec["preload"] is not None:
            os.environ["LD_PRELOAD"] = str(spec["preload"])
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:  # an empty program name is a ValueError
        error_number: int | None = errno.ENOENT
        if isinstance(error, OSError) and ("/" in argv[0] or _is_in_path(argv[0])):
            error_number = error.errno
        os.write(report, str(error_number).encode())
        os._exit(127)


def _is_in_path(program: str) -> bool:
    """Return whether a program that cannot be executed is there: the reason may be a directory of
    PATH that cannot be searched."""
    import shutil  # which takes longer than all the rest

    return shutil.which(program, mode=os.F_OK) is not None


def _enter(namespaces: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    for fd, kind in namespaces:  # type: ignore[attr-defined]
        if libc.setns(fd, kind) != 0:
            raise OSError(ctypes.get_errno(), "")
        os.close(fd)


def _replace_hosts(file: str) -> None:
    """Show another file as /etc/hosts to this process and its children, and to nobody else."""
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.unshare(_NEW_MOUNTS) != 0
        or libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None) != 0
        or libc.mount(file.encode(), b"/etc/hosts", None, _BIND, None) != 0
    ):
        raise OSError(ctypes.get_errno(), "")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
