"""The hook `notify`: notifies people through Apprise, by mail, chat or push.

Its URLs are secrets. Nothing that Apprise prints is passed on, and of a URL only its number and
scheme.
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
from forewarn.agent.hooks.contract import Failure, Run, read_secret, secret_file_problems
from forewarn.agent.hooks.options import Notify

MISSING = "Apprise is not installed: pip install 'forewarn[notify]'"
_SCHEMA = re.compile(r"([A-Za-z][A-Za-z0-9]{0,30})://")


def act(run: Run, options: Notify) -> list[str]:
    title = options.title or wording.headline(run.call)
    body = "\n".join([wording.sentence(run.call), *_details(run)])
    sent = _sent_before(run)
    lines, problems = [], []
    with _silent():
        for number, target in enumerate(_targets(options), 1):
            label = _label(number, target)
            if number in sent:
                lines.append(f"{label}: already sent")
            elif not run.left():
                problems.append(f"{label} was not sent: there is no time left")
            elif _deliver(target, title, body, run):
                lines.append(f"{label}: sent")
                sent.append(number)
                _save_sent(run, sent)  # so that another attempt only notifies the others
            else:
                problems.append(
                    f"{label} was not sent: it is invalid, unreachable or refuses the message"
                )
    if problems:
        raise Failure("; ".join([*problems, *lines]))
    return lines


def check(options: Notify) -> list[str]:
    problems = secret_file_problems(options.urls_file, "urls_file") if options.urls_file else []
    try:
        library = _library()
        targets = _targets(options)
    except Failure as failure:
        return [*problems, str(failure)]
    with _silent():
        for number, target in enumerate(targets, 1):
            if library.Apprise.instantiate(target, suppress_exceptions=True) is None:
                problems.append(
                    f"{_label(number, target)} is not a URL that Apprise supports; see"
                    " https://github.com/caronc/apprise/wiki"
                )
    return problems


def _deliver(target: str, title: str, body: str, run: Run) -> bool:
    library = _library()
    kinds = library.NotifyType
    kind = kinds.INFO if run.call.stage in ("finished", "withdrawn", "undo") else kinds.WARNING
    service = library.Apprise.instantiate(target, suppress_exceptions=True)
    if service is None:
        return False
    notifier = library.Apprise()
    notifier.add(service)
    # Descriptions of events come from others: they are text, not markup or names of files.
    return bool(notifier.notify(body=body, title=title, notify_type=kind, body_format="text"))


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
    text = read_secret(options.urls_file, "urls_file").decode(errors="replace")
    lines = [line.strip() for line in text.splitlines()]
    targets = [line for line in lines if line and not line.startswith("#")]
    if not targets:
        raise Failure(f"urls_file {options.urls_file} contains no URL; write one on each line")
    return targets


def _label(number: int, target: str) -> str:
    match = _SCHEMA.match(target)
    return f"address {number} ({match[1]})" if match else f"address {number}"


def _sent_before(run: Run) -> list[int]:
    return (run.load(_record(run), list[int]) or []) if run.has_state() else []


def _save_sent(run: Run, sent: list[int]) -> None:
    if run.has_state():
        run.save(_record(run), sent)


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
    """Suppress the output of libraries, which may contain the URLs."""
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
