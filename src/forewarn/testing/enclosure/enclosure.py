"""`Enclosure`: a network namespace for programs, in which 169.254.169.254:80 is the service.

`with Enclosure(("127.0.1.8", 8169)) as enclosure: enclosure.popen(["./my-app"]).wait()`. The
namespace is run by the keeper, a process that ends with this one, even if this one is killed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from forewarn.testing.enclosure import diagnose, kernel, public_cloud, start
from forewarn.testing.enclosure.messages import Network, Ready, Request
from forewarn.testing.enclosure.public_cloud import PublicCloud

INSIDE = "http://169.254.169.254"


class CannotEnclose(Exception):
    """The network namespace cannot be created; the message says why, and what to do."""


class Enclosure:
    """A network in which programs reach the service at `target` as 169.254.169.254.

    After entering, `network` says how they reach the rest of the network (pasta, slirp4netns,
    loopback or none) and `notes` what they cannot reach. On leaving, programs that still run inside
    are terminated.
    """

    def __init__(
        self,
        target: tuple[str, int],
        *,
        network: Network | str = Network.AUTO,
        cloud: PublicCloud | None = None,
    ) -> None:
        relays = () if cloud is None else ((public_cloud.INSIDE, cloud.service),)
        self._request = Request((target[0], target[1]), Network(network), relays)
        self._cloud = cloud
        self._namespaces: list[tuple[int, int]] = []
        self.network = ""
        self.notes: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        if problem := diagnose.platform_problem():
            raise CannotEnclose(problem)
        self._keeper_socket, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-P", "-m", "forewarn.testing.enclosure.keeper"]
            self._keeper = subprocess.Popen(
                [*argv, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the program, not for the keeper
            )
        try:
            self._keeper_socket.send(msgspec.json.encode(self._request))
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def _wait_until_ready(self) -> None:
        reply, fds, _, _ = socket.recv_fds(self._keeper_socket, 65536, 2)
        kinds = (kernel.NEW_NET, kernel.NEW_USER)
        namespaces = list(zip(fds, kinds, strict=False))
        self._namespaces = namespaces[
            ::-1
        ]  # the user namespace first: it gives the right to enter the other
        if not reply:
            raise CannotEnclose(
                "the process that keeps the network has ended; see its output on standard error"
            )
        ready = msgspec.json.decode(reply, type=Ready)
        if ready.refused is not None:
            raise CannotEnclose(ready.refused)
        self.network, self.notes = ready.network, ready.notes

    def popen(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        **details: Any,
    ) -> subprocess.Popen[Any]:
        """Start a program inside; like `subprocess.Popen`, and with the same further arguments.

        `env` is its environment (by default ours), to which FOREWARN_METADATA is added.
        """
        environment = {**(os.environ if env is None else env), "FOREWARN_METADATA": INSIDE}
        hosts = ""
        if self._cloud is not None:
            environment |= self._cloud.environment
            hosts = str(self._cloud.hosts)
        return start.start(argv, self._namespaces, env=environment, hosts=hosts, **details)

    def close(self) -> None:
        """Terminate all programs inside, and wait until they have ended."""
        self._keeper_socket.close()
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
