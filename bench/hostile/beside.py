"""Control, and the node on the same host: `python -m bench.hostile.beside CONTROL NODE`.

Both arguments are files of settings. This process becomes the node, so that what is measured of it
is the node alone. Control ends with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    control, node = sys.argv[1:]
    forewarn = [sys.executable, "-m", "forewarn"]
    subprocess.Popen([*forewarn, "serve", "--config", control], preexec_fn=end_with_parent)
    os.execv(sys.executable, [*forewarn, "node", "--config", node])


main()
