"""Messages by Apprise: chat, push and many other services, each by a URL in a file.

Apprise is blocking. It runs in a thread that nobody waits for when the service stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import tzinfo
from functools import partial

from forewarn.notify import kinds as k
from forewarn.notify import text
from forewarn.notify.config import Apprise
from forewarn.notify.notification import Message
from forewarn.notify.targets.port import DeliveryFailed, Sender, secret, secret_problems
from forewarn.support import apprise_urls
from forewarn.support.text import listing

_TYPES = {k.INFO: "info", k.WARNING: "warning", k.ERROR: "failure"}  # by severity


class AppriseSender(Sender):
    def __init__(self, options: Apprise, zone: tzinfo) -> None:
        self._options = options
        self._zone = zone
        self._message = ""  # id of the message that was sent to some of the URLs
        self._sent: set[str] = set()  # these URLs

    @property
    def where(self) -> str:
        return f"the URLs in {self._options.urls_file}"

    def check(self) -> Iterator[str]:
        yield from secret_problems(self._options.urls_file, "urls_file")
        _silence()
        try:
            problems = [apprise_urls.url_problem(*pair) for pair in enumerate(self._urls(), 1)]
        except (DeliveryFailed, apprise_urls.AppriseMissing) as error:
            yield str(error)
            return
        yield from (problem for problem in problems if problem)

    async def send(self, message: Message) -> None:
        if message.id != self._message:
            self._message, self._sent = message.id, set()
        title, body = text.subject(message, self._zone), text.body(message, self._zone)
        kind = _TYPES[message.severity]
        failed = []
        for number, url in enumerate(self._urls(), 1):
            if url in self._sent:
                continue
            try:
                sent = await _in_thread(partial(_deliver, url, title, body, kind))
            except apprise_urls.AppriseMissing as error:
                raise DeliveryFailed(str(error)) from None
            if sent:
                self._sent.add(url)  # so that another attempt only notifies the others
            else:
                failed.append(apprise_urls.label(number, url))
        if failed:
            raise DeliveryFailed(
                f"not sent to {listing(failed)}: it is invalid, unreachable or refuses the message"
            )

    def _urls(self) -> list[str]:
        path = self._options.urls_file
        urls = apprise_urls.urls_in(secret(path, "urls_file"))
        if not urls:
            raise DeliveryFailed(f"urls_file {path} contains no URL; write one on each line")
        return urls


def _deliver(url: str, title: str, body: str, kind: str) -> bool:
    _silence()
    return apprise_urls.deliver(url, title, body, kind)


async def _in_thread(call: Callable[[], bool]) -> bool:
    loop = asyncio.get_running_loop()
    result: asyncio.Future[bool] = loop.create_future()

    def settle(outcome: bool, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(outcome)

    def run() -> None:
        outcome, problem = False, None
        try:
            outcome = call()
        except apprise_urls.AppriseMissing as error:
            problem = error
        except Exception:  # of a plugin, whose text may contain the URL
            outcome = False
        with contextlib.suppress(RuntimeError):  # the service has stopped meanwhile
            loop.call_soon_threadsafe(settle, outcome, problem)

    threading.Thread(target=run, name="notify", daemon=True).start()
    return await result


def _silence() -> None:
    """Let Apprise log nothing, since what it logs may contain the URLs."""
    logging.getLogger("apprise").disabled = True
