"""The log of `forewarn dev` about requests that were refused, as those of a client under
development often are: each kind once, and then with a count now and then."""

from __future__ import annotations

from typing import Any

import msgspec

from forewarn.support.logs import logger
from forewarn.support.repeats import RepeatCounter
from forewarn.traces.exchanges import Exchange, Stamp, exchange

log = logger("forewarn.dev")
MAX_ANSWER = 200  # characters of an answer that are logged


class RefusedRequestLog:
    """Logs refused requests, which it gets as lines of the trace."""

    def __init__(self) -> None:
        self._repeats = RepeatCounter()

    def add(self, line: dict[str, Any]) -> None:
        if line.get("kind") != "exchange":
            return
        traffic = exchange(line, Stamp(line["t"]))
        if traffic.status is None or traffic.status < 400:
            return
        fields = {
            "machine": traffic.machine or traffic.source,
            "request": f"{traffic.method} {traffic.path}",
            "status": traffic.status,
            "answer": _answer(traffic),
            "fault": traffic.fault,
        }
        given = {key: value for key, value in fields.items() if value != ""}
        times, due = self._repeats.add(repr(given), traffic.same + 1)
        if due:
            counts = {"times": times} if times > 1 else {}
            log.warning(
                "a request was refused; 'forewarn verdict' says what would be right",
                **given,
                **counts,
            )


def _answer(traffic: Exchange) -> str:
    """Return the error in an answer, or the answer as it is."""
    content = traffic.answer() or b""
    try:
        return str(msgspec.json.decode(content)["error"])[:MAX_ANSWER]
    except (msgspec.MsgspecError, LookupError, TypeError):
        return content.decode(errors="replace")[:MAX_ANSWER]
