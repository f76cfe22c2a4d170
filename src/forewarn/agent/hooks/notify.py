"""The hook `notify`: notifies people through Apprise, by mail, chat or push.

Its URLs are secrets. Nothing that Apprise prints is passed on, and of a URL only its number and
scheme.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from forewarn.agent.hooks import wording
from forewarn.agent.hooks.contract import Failure, Run, read_secret
from forewarn.agent.hooks.options import Notify
from forewarn.support import apprise_urls
from forewarn.support.files.secret import secret_file_problems


def act(run: Run, options: Notify) -> list[str]:
    title = options.title or wording.headline(run.call)
    body = "\n".join([wording.sentence(run.call), *_details(run)])
    sent = _sent_before(run)
    lines, problems = [], []
    with _silent():
        for number, target in enumerate(_targets(options), 1):
            label = apprise_urls.label(number, target)
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
        targets = _targets(options)
        with _silent():
            found = [apprise_urls.url_problem(*pair) for pair in enumerate(targets, 1)]
    except (Failure, apprise_urls.AppriseMissing) as failure:
        return [*problems, str(failure)]
    return problems + [problem for problem in found if problem]


def _deliver(target: str, title: str, body: str, run: Run) -> bool:
    kind = "info" if run.call.stage in ("finished", "withdrawn", "undo") else "warning"
    try:
        return apprise_urls.deliver(target, title, body, kind)
    except apprise_urls.AppriseMissing as error:
        raise Failure(str(error)) from None


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
    targets = apprise_urls.urls_in(text)
    if not targets:
        raise Failure(f"urls_file {options.urls_file} contains no URL; write one on each line")
    return targets


def _sent_before(run: Run) -> list[int]:
    return (run.load(_record(run), list[int]) or []) if run.has_state() else []


def _save_sent(run: Run, sent: list[int]) -> None:
    if run.has_state():
        run.save(_record(run), sent)


def _record(run: Run) -> str:
    return f"notify-{run.call.stage}"


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
