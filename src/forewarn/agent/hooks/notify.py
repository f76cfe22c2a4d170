"""Telling people, by whatever Apprise knows: mail, chat, push.

Its addresses are secrets. Nothing that Apprise says is printed, and of an address only which it is
and of what kind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forewarn.agent.hooks import wording
from forewarn.agent.hooks.contract import Failure, Run, exposed, private
from forewarn.agent.hooks.options import Notify

MISSING = "Apprise is not installed: pip install 'forewarn[notify]'"
_SCHEMA = re.compile(r"([A-Za-z][A-Za-z0-9]{0,30})://")


def act(run: Run, options: Notify) -> list[str]:
    title = options.title or wording.headline(run.call)
    body = "\n".join([wording.sentence(run.call), *_details(run)])
    sent = _sent_before(run)
    lines, wrong = [], []
    with _silent():
        for number, target in enumerate(_targets(options), 1):
            what = _named(number, target)
            if number in sent:
                lines.append(f"{what}: sent already")
            elif not run.left():
                wrong.append(f"{what} was not sent: there is no time left")
            elif _delivered(target, title, body, run):
                lines.append(f"{what}: sent")
                sent.append(number)
                _remember(run, sent)  # another attempt is for the others only
            else:
                wrong.append(f"{what} was not sent: it is refused, unreachable or not understood")
    if wrong:
        raise Failure("; ".join([*wrong, *lines]))
    return lines


def check(options: Notify) -> list[str]:
    problems = exposed(options.urls_file, "urls_file") if options.urls_file else []
    try:
        library = _library()
        targets = _targets(options)
    except Failure as failure:
        return [*problems, str(failure)]
    with _silent():
        for number, target in enumerate(targets, 1):
            if library.Apprise.instantiate(target, suppress_exceptions=True) is None:
                problems.append(
                    f"{_named(number, target)} is none that Apprise understands;"
                    " https://github.com/caronc/apprise/wiki shows how they are written"
                )
    return problems


def _delivered(target: str, title: str, body: str, run: Run) -> bool:
    library = _library()
    kinds = library.NotifyType
    kind = kinds.INFO if run.call.stage in ("finished", "withdrawn", "undo") else kinds.WARNING
    service = library.Apprise.instantiate(target, suppress_exceptions=True)
    if service is None:
        return False
    told = library.Apprise()
    told.add(service)
    # What others have written is text, not markup or the name of a file.
    return bool(told.notify(body=body, title=title, notify_type=kind, body_format="text"))


def _details(run: Run) -> Iterator[str]:
    event = run.call.event
    if event.not_before and run.call.stage == "prepare":
        yield f"Not before: {event.not_before}"
    if event.duration is not None and event.duration >= 0:
        yield f"Expected to take: {event.duration:g} s"
    yield f"Event: {event.id}"


def _targets(options: Notify) -> list[str]:
    if not options.urls_file:
        return options.urls
    text = private(options.urls_file, "urls_file").decode(errors="replace")
    lines = [line.strip() for line in text.splitlines()]
    targets = [line for line in lines if line and not line.startswith("#")]
    if not targets:
        raise Failure(f"urls_file {options.urls_file} names nobody; one address on each line")
    return targets


def _named(number: int, target: str) -> str:
    found = _SCHEMA.match(target)
    return f"address {number} ({found[1]})" if found else f"address {number}"


def _sent_before(run: Run) -> list[int]:
    return (run.kept(_record(run), list[int]) or []) if run.has_state() else []


def _remember(run: Run, sent: list[int]) -> None:
    if run.has_state():
        run.keep(_record(run), sent)


def _record(run: Run) -> str:
    return f"notify-{run.call.stage}"


def _library() -> Any:
    try:
        import apprise
    except ImportError:
        raise Failure(MISSING) from None
    return apprise


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Libraries tell of addresses, in logs and otherwise."""
    logging.disable(logging.CRITICAL)
    try:
        with (
            Path(os.devnull).open("w") as nowhere,
            contextlib.redirect_stderr(nowhere),
            warnings.catch_warnings(action="ignore"),
        ):
            yield
    finally:
        logging.disable(logging.NOTSET)
