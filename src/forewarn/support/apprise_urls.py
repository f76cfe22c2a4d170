"""Messages by Apprise. Its URLs are secrets: of a URL, only its number and scheme are shown."""

from __future__ import annotations

import re
from typing import Any

MISSING = "Apprise is not installed: pip install 'forewarn[notify]'"

_SCHEMA = re.compile(r"([A-Za-z][A-Za-z0-9]{0,30})://")


class AppriseMissing(Exception):
    """Apprise is not installed."""


def library() -> Any:
    try:
        import apprise
    except ImportError:
        raise AppriseMissing(MISSING) from None
    return apprise


def urls_in(text: str) -> list[str]:
    """Return the URLs of a file: one on each line, except for empty lines and comments."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def label(number: int, url: str) -> str:
    match = _SCHEMA.match(url)
    return f"address {number} ({match[1]})" if match else f"address {number}"


def url_problem(number: int, url: str) -> str:
    """Return what is wrong with a URL; empty if Apprise supports it."""
    if library().Apprise.instantiate(url, suppress_exceptions=True) is not None:
        return ""
    return (
        f"{label(number, url)} is not a URL that Apprise supports; see"
        " https://github.com/caronc/apprise/wiki"
    )


def deliver(url: str, title: str, body: str, kind: str) -> bool:
    """Send a message of this kind (info, success, warning, failure). Returns whether it was sent.

    Texts come from others: they are text, not markup or names of files."""
    apprise = library()
    service = apprise.Apprise.instantiate(url, suppress_exceptions=True)
    if service is None:
        return False
    notifier = apprise.Apprise()
    notifier.add(service)
    return bool(notifier.notify(body=body, title=title, notify_type=kind, body_format="text"))
