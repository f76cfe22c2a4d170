"""What every target offers: `check` without sending anything, and `send`."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator

from forewarn.notify.notification import Message
from forewarn.support.fetch import connection_problem
from forewarn.support.files.secret import SecretUnreadable, read_secret, secret_file_problems
from forewarn.support.text import SECOND, in_words, parse_duration


class DeliveryFailed(Exception):
    """A message was not delivered. The text contains no secret."""

    def __init__(
        self, why: str, *, refused: bool = False, gone: bool = False, wait: float = 0.0
    ) -> None:
        super().__init__(why)
        self.refused = refused  # by the target: another attempt hardly helps
        self.gone = gone  # for good, as the target says
        self.wait = wait  # seconds that the target asks to wait


class Sender(ABC):
    """Sends messages to one target."""

    @property
    @abstractmethod
    def where(self) -> str:
        """A name of the target that contains no secret."""

    @abstractmethod
    def check(self) -> Iterator[str]:
        """Yield what is wrong with its files and packages, without sending anything."""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Do what takes long and does not wait for anybody, such as importing a library. Called in
        a thread before each message; raises DeliveryFailed."""

    @abstractmethod
    async def send(self, message: Message) -> None:
        """Send a message; raises DeliveryFailed."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what the sender has opened."""


async def send(sender: Sender, message: Message, timeout: str) -> None:
    """Prepare a sender in a thread, and send a message within a time. Raises DeliveryFailed."""
    await asyncio.to_thread(sender.prepare)
    duration = parse_duration(timeout)
    try:
        async with asyncio.timeout(duration / SECOND):
            await sender.send(message)
    except TimeoutError:
        raise DeliveryFailed(f"{sender.where}: no answer within {in_words(duration)}") from None


def secret(path: str, what: str) -> str:
    """Return the text of a file with a secret, which must not be empty."""
    try:
        text = read_secret(path, what).decode("utf-8", "replace").strip()
    except SecretUnreadable as error:
        raise DeliveryFailed(str(error)) from None
    if not text:
        raise DeliveryFailed(f"{what} {path} is empty")
    return text


def secret_problems(path: str, what: str) -> Iterator[str]:
    if not path:
        return
    problems = secret_file_problems(path, what)
    yield from problems
    if not problems:
        try:
            secret(path, what)
        except DeliveryFailed as error:
            yield str(error)


def ssl_context(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca or None)
    except ssl.SSLError:
        raise DeliveryFailed(f"ca {ca} contains no certificate") from None
    except OSError as error:
        raise DeliveryFailed(f"ca {ca} cannot be read: {error.strerror}") from None


def reason(error: Exception) -> str:
    """Return the reason for an error of a connection. Its own text may contain a secret."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return connection_problem(cause)
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
