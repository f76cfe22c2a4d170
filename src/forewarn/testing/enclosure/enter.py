"""Entering namespaces and becoming a program: run as a script, in a process of its own.

`python -I -S enter.py SPEC PROGRAM [ARGUMENT…]`, where SPEC is JSON: which namespaces (open
files and their kinds), which signals to block, what to preload, and where to say why not.
Standard library only: this starts in the time that Python needs to start.
"""

import ctypes
import errno
import json
import os
import signal
import sys


def main(spec: dict[str, object], argv: list[str]) -> None:
    report = int(str(spec["report"]))
    os.set_inheritable(report, False)  # closed by success
    try:
        _enter(spec["namespaces"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, a program must not
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, spec["blocked"])  # type: ignore[arg-type]
        if spec["preload"] is not None:
            os.environ["LD_PRELOAD"] = str(spec["preload"])
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:  # a program without a name is a ValueError
        why = error.errno if isinstance(error, OSError) else errno.ENOENT
        os.write(report, str(why).encode())
        os._exit(127)


def _enter(namespaces: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    for fd, kind in namespaces:  # type: ignore[attr-defined]
        if libc.setns(fd, kind) != 0:
            raise OSError(ctypes.get_errno(), "")
        os.close(fd)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
