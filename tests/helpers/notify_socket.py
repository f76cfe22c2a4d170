"""The receiving end of what a service manager is told."""

from __future__ import annotations

import socket
from types import TracebackType

from helpers.waiting import LIMIT


class NotifySocket:
    """As systemd's, but that it only listens."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address[0] == "@" else address)
        self._socket.settimeout(LIMIT)

    def message(self) -> dict[str, str]:
        lines = self._socket.recv(65_536).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def until(self, key: str) -> dict[str, str]:
        """The next message about this; those before it are not."""
        for _ in range(100):  # what comes again and again must not keep us for ever
            if key in (message := self.message()):
                return message
        raise AssertionError(f"nothing about {key}")

    def drain(self) -> list[dict[str, str]]:
        """All that has been said by now."""
        self._socket.setblocking(False)
        found = []
        try:
            while True:
                found.append(self.message())
        except BlockingIOError:
            return found
        finally:
            self._socket.settimeout(LIMIT)

    def silent(self, seconds: float) -> bool:
        """Is nothing said for so long?"""
        self._socket.settimeout(seconds)
        try:
            self.message()
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(LIMIT)
        return False

    def __enter__(self) -> NotifySocket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._socket.close()
