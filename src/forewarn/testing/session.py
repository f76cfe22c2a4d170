"""`Session`: a node running in a thread and event loop of its own, and how other threads use it.

Everything that needs a running service without making one takes a `Session`: the kit's handles and
the scenario player. `kit.service.Service`, which users see, holds one. It runs work in the
service's loop, refuses work from the wrong thread or process and before the start or after the
stop, and knows the addresses and the verdict. What a test can do with a service is `kit`.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType, TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

from forewarn.core import Machine
from forewarn.node import Address, Node
from forewarn.service.engine.catch_up import Patience, Stopped
from forewarn.support import guard
from forewarn.testing.errors import RefusedError
from forewarn.testing.impacts import Impacts, in_callback
from forewarn.verdict.verdict import Verdict

P = ParamSpec("P")
T = TypeVar("T")

LOOPBACK = Address("127.0.0.1", 0)
HTTP_CLIENTS = (  # modules that run while a thread sends a request and waits for the answer
    "http.client",
    "socket",
    "ssl",
    "urllib",
    "urllib3",
    "requests",
    "httpx",
    "httpcore",
    "forewarn.client",
)
STOP_WITHIN = 15.0  # seconds for the service's thread to end, which takes a millisecond
NOT_YET = "this service has not started; use it inside 'with Service() as service:'"
STOPPED = "this service has stopped; use it inside its 'with' block"
ONCE = "a service can be started only once; create another with Service()"
FORKED = (
    "this process is a fork of the one that runs the service; use its sockets"
    " (take machine.url before the fork)"
)
OWN_THREAD = "this is the service's own thread, which cannot wait for itself; use another thread"
NEVER_STOPPED = "a service was never stopped; use it inside 'with Service() as service:'"
DOES_NOT_STOP = f"a service did not stop within {STOP_WITHIN:g} s; its thread is left behind"
IN_TRIO = (
    "with trio, use 'with Service() as service:' and call what waits in a thread:"
    " 'await trio.to_thread.run_sync(service.clock.play, \"15m\")'"
)
NO_ASYNCIO = f"this needs asyncio, and no asyncio event loop is running here; {IN_TRIO}"
NOT_OBSERVED = "polls answered by the fast path are not observed; use front=False"

_caller: ContextVar[str] = ContextVar("forewarn_caller", default="")
_ids: WeakKeyDictionary[asyncio.Task[Any] | threading.Thread, str] = WeakKeyDictionary()
_ids_lock = threading.Lock()
_numbers = itertools.count(1)


def caller_id() -> str:
    """Identify the running task, or else the thread.

    A caller that plays a clock sends no requests meanwhile, and so the clock must not wait for it.
    """
    if identity := _caller.get():
        return identity
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop in this thread
        task = None
    return _id_of(task if task is not None else threading.current_thread())


def _id_of(caller: asyncio.Task[Any] | threading.Thread) -> str:
    """Return an id that nobody else ever gets, unlike the number of a thread that has ended."""
    with _ids_lock:
        if caller not in _ids:
            _ids[caller] = f"caller {next(_numbers)}"
        return _ids[caller]


def in_a_loop() -> bool:
    """Return whether the caller runs in an event loop, which it would block by waiting."""
    return in_asyncio() or in_trio()


def in_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def in_trio() -> bool:
    trio = sys.modules.get("trio")
    return trio is not None and trio.lowlevel.in_trio_run()


def refuse_in_a_loop(call: str, instead: str = "'await service.to_thread(…)'") -> None:
    """Refuse to wait for clients in the event loop that they may run in."""
    why = f"{call} waits for clients, and here it would block the event loop that they may run in"
    if in_asyncio():
        raise RefusedError(f"{why}; use {instead}")
    if in_trio():
        raise RefusedError(f"{why}; {IN_TRIO}")


def requesting() -> frozenset[str]:
    """Return the ids of the threads of this process that are sending an HTTP request now.

    A test may call its client step by step in its own thread, which cannot poll while it waits.
    """
    frames = _current_frames()
    return frozenset(
        _id_of(thread)
        for thread in threading.enumerate()
        if thread.ident in frames
        and any(_sends_requests(frame) for frame, _ in traceback.walk_stack(frames[thread.ident]))
    )


def _current_frames() -> dict[int, FrameType]:
    """Return what each thread runs now. Older Pythons come to a standstill if garbage is collected
    meanwhile and another thread ends."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def _sends_requests(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__"))
    return any(name == module or name.startswith(f"{module}.") for module in HTTP_CLIENTS)


@contextmanager
def same_caller() -> Iterator[None]:
    """Let threads that this task starts in the block count as the task itself."""
    token = _caller.set(caller_id())
    try:
        yield
    finally:
        _caller.reset(token)


def need_asyncio() -> None:
    """Refuse to go on in a coroutine that no asyncio event loop runs, such as one of trio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RefusedError(NO_ASYNCIO) from None


class Session:
    """A node in a thread of its own."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop  # from the start on
        self._process = os.getpid()
        self._stopped = False
        self._submitting = threading.Lock()  # nothing is submitted to a loop that is stopping
        self._impacts: Impacts | None = None

    @property
    def node(self) -> Node:
        """The running node."""
        if self._thread is None:
            raise RefusedError(NOT_YET)
        return self._node

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise RefusedError(ONCE)
        self._process = os.getpid()
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_loop, args=(loop,), name="forewarn", daemon=True
        )
        self._thread.start()
        try:
            self.run(self._node.__aenter__())
            if (catch_up := self._node.catch_up) is not None:
                catch_up.requesting = requesting
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._stopped or os.getpid() != self._process:  # a fork does not stop its parent's
            return
        try:
            self.run(self._node.__aexit__(kind, value, tb))
        finally:
            self._end()
        if kind is None:
            self.raise_from_callbacks()

    def __del__(self) -> None:
        loop = self.__dict__.get("_loop")
        if loop is None or self._stopped or os.getpid() != self._process:
            return
        warnings.warn(NEVER_STOPPED, ResourceWarning, stacklevel=1, source=self)
        asyncio.run_coroutine_threadsafe(_abandon(self._node, loop), loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the service's loop and wait for its result."""
        future = self.submit(work)
        try:
            return future.result()
        except CancelledError:
            if self._stopped:  # meanwhile
                raise RefusedError(STOPPED) from None
            raise
        except BaseException:  # also Ctrl-C: the result is not wanted any more
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the service's loop without waiting for it."""
        problem = self._problem()
        if not problem:
            with self._submitting:
                if not self._stopped:
                    return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise RefusedError(problem or STOPPED)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the service's loop, so that nothing changes meanwhile."""

        async def called() -> T:
            return function(*args, **kwargs)

        return self.run(called())

    async def to_thread(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread that counts as this task, and await it."""
        need_asyncio()
        with same_caller():
            return await asyncio.to_thread(verb, *args, **kwargs)

    def settle(self) -> None:
        """Wait until everything that has been set in motion has happened.

        Raise what a callback for an impact has raised meanwhile. A callback itself does not wait,
        since what has been set in motion waits for it.
        """
        if not in_callback():
            self.run(self.node.ledger.idle())
            self.raise_from_callbacks()

    def raise_from_callbacks(self) -> None:
        """Raise the error that a callback for an impact has raised, if one has."""
        if self._impacts is not None and self._impacts.errors:
            raise self._impacts.errors.pop(0)

    @property
    def impacts(self) -> Impacts:
        """The callbacks for impacts on machines, from the first use on."""
        if self._impacts is None:
            self._impacts = self.call(Impacts, self.node)
        return self._impacts

    @property
    def returned(self) -> Mapping[str, float]:
        """The machines that have come back after an impact, and when, in real time."""
        return {} if self._impacts is None else self._impacts.returned

    @property
    def addresses(self) -> dict[str, str]:
        """The loopback address of each machine, by its name."""
        groups = self.call(lambda: list(self.node.machine_index.groups()))
        return {machine.name: machine.addresses[0] for g in groups for machine in g.machines}

    def address(self, machine: str) -> str:
        """Return the loopback address of a machine: a request sent there comes from it."""
        return self._record(machine).addresses[0]

    def _record(self, machine: str) -> Machine:
        machine_index = self.node.machine_index
        place = self.call(machine_index.machine, machine)
        if place is None:
            hint = 'there are none yet; add some: service.scale_set("web", 3)'
            message = machine_index.unknown_machine(machine).message
            raise RefusedError(
                message if machine_index.count else f"no machine '{machine}': {hint}"
            )
        return place[1]

    def url(self, machine: object = None) -> str:
        """Return the URL of the endpoint, or of the endpoint as one machine reaches it.

        The sockets are opened by the first call.
        """
        if not self.node.metadata_url:
            self.run(self.node.open_metadata(LOOPBACK))
        if machine is None:
            return self.node.metadata_url
        return self.call(self.node.url_of, self._record(str(machine)))

    @property
    def control_url(self) -> str:
        """The URL of the control API, whose socket is opened by the first use."""
        if not self.node.control_url:
            self.run(self.node.open_control(LOOPBACK))
        return self.node.control_url

    def verdict(self, timeout: float = 0.0) -> Verdict:
        """Return what the machines' clients have done so far, and what was wrong with it.

        With a timeout, wait so many real seconds for clients that poll by themselves and have not
        seen the newest change. In an event loop, where the clients may run, and in a callback for
        an impact, for which everything else waits, nothing is waited for.
        """
        if self.node.observer is None:
            raise RefusedError(NOT_OBSERVED)
        self.settle()
        if timeout > 0 and not in_a_loop() and not in_callback():
            self.let_clients_catch_up(timeout)
        return self.call(self.node.observer.verdict)

    def let_clients_catch_up(self, timeout: float) -> None:
        """Wait for clients that poll by themselves until they have seen what is visible now."""
        virtual_time, catch_up = self.node.virtual_time, self.node.catch_up
        patience = Patience(timeout, 0.0, caller_id())
        try:
            if virtual_time is not None:
                self.run(virtual_time.let_clients_catch_up(patience))
            elif catch_up is not None:
                self.run(catch_up.all_caught_up(patience, by_itself=True))
        except Stopped as stopped:
            raise RefusedError(STOPPED) from stopped

    def _problem(self) -> str:
        if self._thread is None:
            return NOT_YET
        if self._stopped:
            return STOPPED
        if os.getpid() != self._process:
            return FORKED
        if threading.current_thread() is self._thread:
            return OWN_THREAD
        return ""

    def _end(self) -> None:
        assert self._thread is not None
        with self._submitting:
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_WITHIN)
        if self._thread.is_alive():  # a daemon thread does no harm, so warn instead of waiting
            warnings.warn(DOES_NOT_STOP, ResourceWarning, stacklevel=3)


class HasSession(Protocol):
    """What runs on a session: `kit.service.Service`, for code that is below it."""

    @property
    def _session(self) -> Session: ...


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_all())
    finally:
        loop.close()


async def _cancel_all() -> None:
    """Cancel every task, so that no thread waits for one forever; then deliver what is done."""
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left)
    await guard.pause(0)


async def _abandon(node: Node, loop: asyncio.AbstractEventLoop) -> None:
    """Stop a session that was garbage-collected without being stopped."""
    try:
        await node.__aexit__(None, None, None)
    finally:
        loop.stop()
