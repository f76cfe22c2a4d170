"""`Enclosure`: a network of its own for programs, in which 169.254.169.254:80 is the service.

`with Enclosure(("127.0.1.8", 8169)) as inside: inside.popen(["./my-app"]).wait()`. What happens in
there is the keeper's business, a process that ends with this one, whichever way it ends.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from forewarn.testing.enclosure import diagnose, kernel, start
from forewarn.testing.enclosure.messages import Network, Order, Ready

INSIDE = "http://169.254.169.254"


class CannotEnclose(Exception):
    """No such network can be made here; the message says why, and what to do."""


class Enclosure:
    """Programs that are started in it believe to be the machine that asks at `target`.

    After entering, `network` says what else they reach (pasta, slirp4netns, loopback or none) and
    `notes` what they do not. On leaving, whatever still runs inside is ended."""

    def __init__(self, target: tuple[str, int], *, network: Network | str = Network.AUTO) -> None:
        self._order = Order(target=(target[0], target[1]), network=Network(network))
        self._namespaces: list[tuple[int, int]] = []
        self.network = ""
        self.notes: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        if says := diagnose.no_linux():
            raise CannotEnclose(says)
        self._line, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-P", "-m", "forewarn.testing.enclosure.keeper"]
            self._keeper = subprocess.Popen(
                [*argv, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is for the program
            )
        try:
            self._line.send(msgspec.json.encode(self._order))
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def _begin(self) -> None:
        said, fds, _, _ = socket.recv_fds(self._line, 65536, 2)
        kinds = (kernel.NEW_NET, kernel.NEW_USER)
        found = list(zip(fds, kinds, strict=False))
        self._namespaces = found[::-1]  # the user's first: it gives the right to enter the other
        if not said:
            raise CannotEnclose("the process that keeps the network has ended; see what it said")
        ready = msgspec.json.decode(said, type=Ready)
        if ready.refused is not None:
            raise CannotEnclose(ready.refused)
        self.network, self.notes = ready.network, ready.notes

    def popen(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        blocked: Collection[int] | None = None,
        **details: Any,
    ) -> subprocess.Popen[Any]:
        """Start a program inside; like `subprocess.Popen`, whose other arguments may be given too.

        `env` is all of its environment (ours, if not given); FOREWARN_METADATA is added."""
        around = {**(os.environ if env is None else env), "FOREWARN_METADATA": INSIDE}
        return start.start(argv, self._namespaces, env=around, blocked=blocked, **details)

    def close(self) -> None:
        """End whatever is inside; returns when nothing is left of it."""
        self._line.close()
        self._keeper.wait()
        for fd, _ in self._namespaces:
            os.close(fd)
        self._namespaces = []

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
