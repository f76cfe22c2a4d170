"""Control's side of the connections to driver processes: which hosts have one, and calls on it.

A process is on a host that may be taken over. It is asked only about machines of the hosts that its
certificate names, and whatever else it sends ends its connection."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

import msgspec

from forewarn import __version__
from forewarn.drivers.hosts.messages import (
    ANSWERS,
    DRIVER_PROTOCOLS,
    Answer,
    Answered,
    Ask,
    DriverHello,
    DriverPing,
    DriverPong,
    DriverRefused,
    DriverRenew,
    DriverRenewed,
    DriverWelcome,
    FromDriver,
    Progressed,
    Raised,
    Verb,
)
from forewarn.drivers.port import Seen, Task
from forewarn.support import guard
from forewarn.support.control_follower import QUIET
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger
from forewarn.support.message_stream import (
    Allowance,
    BrokenConnection,
    MessageStream,
    Misbehaved,
    at_most,
)
from forewarn.support.twins import Twins

HELLO_WITHIN = 10.0  # seconds in which a process has to send its hello
MAX_HELLO = 256 * 1024  # bytes of it
MAX_GREETINGS = 4  # connections of a host that are not served yet
BARRED_FOR = 10.0  # seconds without a connection for a process that has misbehaved
SENT_BY_PROCESS = 1024 * 1024  # bytes that a process may send in a second: all machines of a host
SENT_BY_HOST = 16 * 1024  # and for each of its hosts
RENEWAL_COST = 1_024  # bytes that a request for a certificate counts for
CHECK_EVERY = 0.5  # seconds between two looks at the connections
TWO_PROCESSES = (
    "two driver processes have a certificate for this host, so neither is served; end the one that"
    " is not on the host, or revoke its certificates and enroll the host again"
)

log = logger("forewarn")


class DriverRaised(Exception):
    """The driver has raised an error; the message says which."""


class _Call(msgspec.Struct, frozen=True):
    verb: Verb
    event: str
    answer: asyncio.Future[Answer]


class DriverConnection:
    """A driver process that is connected."""

    def __init__(
        self, stream: MessageStream[FromDriver], hello: DriverHello, certificate: bytes
    ) -> None:
        self.stream = stream
        self.hello = hello
        self.hosts = hello.hosts
        self.certificate = certificate
        self.heard = guard.boottime()
        self.calls: dict[int, _Call] = {}
        rate = SENT_BY_PROCESS + SENT_BY_HOST * len(self.hosts)
        self.allowance = Allowance(rate, lambda: rate)

    @property
    def names(self) -> str:
        return ", ".join(self.hosts)


class DriverConnections:
    def __init__(self, term: Callable[[], int]) -> None:
        self._term = term
        self._by_host: dict[str, DriverConnection] = {}
        self._numbers = count(1)
        self._greeting: Counter[str] = Counter()  # by host: connections that are not served yet
        self._twins = Twins()
        self._barred: dict[str, float] = {}  # by host: until when it gets no connection
        self._refused = LogThrottle()
        self._closing = False
        # Why a process of a host with this certificate (DER) is refused, or "".
        self.problem: Callable[[str, bytes], str] = lambda *_: ""
        # Returns a new certificate for the process of a host in the place of this one (DER).
        self.renew: Callable[[str, bytes], DriverRenewed | None] = lambda *_: None
        # Called with a connection, and whether it is one from now on.
        self.on_change: Callable[[DriverConnection, bool], None] = lambda *_: None
        self.on_progress: Callable[[str, str], None] = lambda *_: None
        self.on_seen: Callable[[Seen], None] = lambda _: None

    def of(self, host: str) -> DriverConnection | None:
        return self._by_host.get(host)

    async def ask(self, connection: DriverConnection, verb: Verb, task: Task) -> Answer:
        """Return the answer of a process to a call. Raises BrokenConnection if the connection is
        lost, in which case the call may be carried out, or DriverRaised."""
        if not self._is_connected(connection):
            raise BrokenConnection("it was lost before the call")
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        connection.calls[number] = _Call(verb, task.event, answer)
        try:
            connection.stream.send(Ask(number, verb, task))
            return await answer
        finally:
            connection.calls.pop(number, None)

    def _is_connected(self, connection: DriverConnection) -> bool:
        return self._by_host.get(connection.hosts[0]) is connection

    async def serve(
        self, stream: MessageStream[FromDriver], hosts: Sequence[str], certificate: bytes
    ) -> None:
        """Serve a driver process until its connection is broken. `hosts` are those that its
        certificate names."""
        connection: DriverConnection | None = None
        names = ", ".join(hosts)
        try:
            if not self._may_connect(hosts):
                return
            self._greeting.update(hosts)
            try:
                async with asyncio.timeout(HELLO_WITHIN):
                    hello = await stream.receive(at_most(MAX_HELLO))
            finally:
                self._greeting.subtract(hosts)
                self._greeting += Counter()  # without those that have none
            if problem := self._problem(hello, hosts, certificate):
                if self._refused.record():
                    log.warning("a driver process was refused", hosts=names, why=problem)
                stream.send(DriverRefused(problem))
                await stream.drain()
                return
            assert isinstance(hello, DriverHello)
            connection = self._enter(stream, hello, certificate)
            await stream.deliver(
                lambda message: self._receive(connection, message), connection.allowance.admit
            )
        except (BrokenConnection, TimeoutError) as error:
            why = str(error) or f"it has sent no hello within {HELLO_WITHIN:g} s"
            if isinstance(error, Misbehaved):
                self._barred |= dict.fromkeys(hosts, guard.monotonic() + BARRED_FOR)
                log.error("a driver process has sent what it must not send", hosts=names, why=why)
            elif not self._closing:
                log.warning("a driver process is no longer connected", hosts=names, why=why)
            if connection is not None:
                self._leave(connection, why)
        finally:
            if connection is not None:
                self._leave(connection, "control is stopping")
            stream.cut()

    def _may_connect(self, hosts: Sequence[str]) -> bool:
        now = guard.monotonic()
        self._barred = {host: until for host, until in self._barred.items() if until > now}
        return not self._closing and not any(
            host in self._barred or self._greeting[host] >= MAX_GREETINGS for host in hosts
        )

    def _problem(self, hello: FromDriver, hosts: Sequence[str], certificate: bytes) -> str:
        if not isinstance(hello, DriverHello):
            return "a driver process must send a hello first"
        for host in hello.hosts:
            if host not in hosts:
                return f"its certificate is for {', '.join(hosts)}, and not for host '{host}'"
            if problem := self.problem(host, certificate):
                return problem
        if not set(hello.protocols) & set(DRIVER_PROTOCOLS):
            return (
                f"this is forewarn {__version__} (protocols {DRIVER_PROTOCOLS}), the driver process"
                f" is {hello.version} (protocols {hello.protocols}); upgrade the older one"
            )
        if any(self._is_twin(host, hello.instance) for host in hello.hosts):
            return TWO_PROCESSES
        if hello.term > self._term():
            return f"it is of term {self._term()}, and there was {hello.term} before"
        return ""

    def _is_twin(self, host: str, instance: str) -> bool:
        """Return whether two processes have the certificate of a host, and serve neither then."""
        if not instance or not self._twins.greeted(host, instance, guard.monotonic()):
            return False
        if connection := self._by_host.get(host):
            self.cut(connection, TWO_PROCESSES)
        return True

    def _enter(
        self, stream: MessageStream[FromDriver], hello: DriverHello, certificate: bytes
    ) -> DriverConnection:
        for host in hello.hosts:
            if earlier := self._by_host.get(host):
                self.cut(earlier, "another connection has taken its place")
        protocol = max(set(hello.protocols) & set(DRIVER_PROTOCOLS))
        stream.send(DriverWelcome(protocol=protocol, version=__version__, term=self._term()))
        connection = DriverConnection(stream, hello, certificate)
        self._by_host |= dict.fromkeys(hello.hosts, connection)
        log.info("a driver process is connected", hosts=connection.names, driver=hello.driver)
        self.on_change(connection, True)
        return connection

    def _receive(self, connection: DriverConnection, message: FromDriver) -> None:
        if not self._is_connected(connection):
            return
        connection.heard = guard.boottime()
        match message:
            case DriverPing():
                connection.stream.send(DriverPong())
            case Answered(id=id, answer=answer) if call := connection.calls.get(id):
                if not isinstance(answer, ANSWERS[call.verb]):
                    kind = type(answer).__name__
                    raise Misbehaved(f"it has answered {call.verb} with {kind}")
                if not call.answer.done():
                    call.answer.set_result(answer)
            case Raised(id=id, why=why) if call := connection.calls.get(id):
                if not call.answer.done():
                    call.answer.set_exception(DriverRaised(why))
            case Progressed(id=id, progress=progress) if call := connection.calls.get(id):
                self.on_progress(call.event, progress)
            case Seen(host=host):
                if host not in connection.hosts:
                    raise Misbehaved(f"a report about host '{host}', which is not its own")
                self.on_seen(message)
            case DriverRenew():
                connection.allowance.spend(RENEWAL_COST)
                if renewed := self.renew(connection.hosts[0], connection.certificate):
                    connection.stream.send(renewed)
            case DriverHello():
                raise Misbehaved("a second hello")

    def _leave(self, connection: DriverConnection, why: str) -> None:
        if not self._is_connected(connection):
            return
        for host in connection.hosts:
            del self._by_host[host]
        for call in connection.calls.values():
            if not call.answer.done():
                call.answer.set_exception(BrokenConnection(why))
        self.on_change(connection, False)

    def cut(self, connection: DriverConnection, why: str) -> None:
        """Disconnect a process; it connects again."""
        log.warning("a driver process is cut off", hosts=connection.names, why=why)
        self._leave(connection, why)
        connection.stream.cut()

    def look_at(self, host: str) -> None:
        """Disconnect the process of a host whose certificate is not accepted any more."""
        connection = self._by_host.get(host)
        if connection and (problem := self.problem(host, connection.certificate)):
            self.cut(connection, problem)

    async def watch(self) -> None:
        """Look for processes that are silent."""
        while True:
            await guard.pause(CHECK_EVERY)
            for connection in set(self._by_host.values()):
                if guard.boottime() - connection.heard > QUIET:
                    self.cut(connection, f"it has sent nothing for {QUIET:g} s")

    def close(self) -> None:
        self._closing = True
        for connection in set(self._by_host.values()):
            self._leave(connection, "control is stopping")
            connection.stream.close()
