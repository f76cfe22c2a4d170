"""Who calls: a test is told from its clients by the thread or the task that it runs in."""

from __future__ import annotations

import asyncio
import threading
from types import FunctionType

import pytest

from forewarn.testing.session import caller_id, requesting

MANY = 20  # threads or tasks, one after the other


def test_a_new_thread_is_not_confused_with_one_that_has_ended() -> None:
    """The system gives the number of a thread that has ended to the next one."""
    ids: list[str] = []
    for _ in range(MANY):
        thread = threading.Thread(target=lambda: ids.append(caller_id()))
        thread.start()
        thread.join()
    assert len(set(ids)) == MANY


def test_a_new_task_is_not_confused_with_one_that_has_ended() -> None:
    async def identify() -> str:
        assert caller_id() == caller_id()
        return caller_id()

    assert len({asyncio.run(identify()) for _ in range(MANY)}) == MANY


@pytest.mark.parametrize(
    ("module", "sends"),
    [("requests", True), ("urllib3.connectionpool", True), ("requests_test", False)],
)
def test_a_thread_sends_a_request_while_code_of_such_a_library_runs(
    module: str, sends: bool
) -> None:
    """A test whose module only begins with the name of one does not."""
    call = FunctionType(
        (lambda: requesting()).__code__,
        {"__name__": module, "requesting": requesting},
    )
    assert (caller_id() in call()) is sends
