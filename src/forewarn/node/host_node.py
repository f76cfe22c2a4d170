"""The node of a host: the guests' endpoint there, a connection to control, and a journal of what it
was told. It has no store and no control API, and makes no decisions."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.core.time import SECOND, Time
from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.metadata.endpoint.callers import Callers, Identity
from forewarn.metadata.endpoint.lookups import Lookups
from forewarn.metadata.endpoint.recorder import Recorder
from forewarn.metadata.publishing.journal import Journal, JournalInUse
from forewarn.metadata.publishing.node_upstream import NodeUpstream
from forewarn.node.component import Component
from forewarn.node.config import Address, HostNodeConfig, Tls
from forewarn.node.listening.certificates import Pair, examine
from forewarn.node.listening.node_connections import make_tls_dial, make_unix_dial
from forewarn.node.listening.renewal import CertificateRenewal
from forewarn.node.listening.serve import serve_guests, url
from forewarn.node.listening.socket_activation import adopt
from forewarn.node.listening.sockets import all_or_none, open_socket
from forewarn.node.listening.status_pages import (
    NOT_SYNCHRONIZED,
    Health,
    ListedMachine,
    StatusPages,
    list_machines,
)
from forewarn.node.listening.tls import Certificates, CertificateUnusable
from forewarn.service.access.authority import NODE_URI
from forewarn.service.engine.clock import FollowedClock
from forewarn.service.telemetry.event_trace import FileEventTrace
from forewarn.service.telemetry.expiry import certificate_reading
from forewarn.service.telemetry.samples import Sample, gauge
from forewarn.support import guard
from forewarn.support.control_follower import Dial
from forewarn.support.logs import logger
from forewarn.support.text import utc

if TYPE_CHECKING:
    from forewarn.metadata.http.front import Front

# Approvals and the like of one machine that are passed on to control, which ends the connection of
# a node that passes on more than 16 for each of its machines.
DECISIONS_PER_SECOND = 10
# Seconds by which the clock of a recording may differ from control's while that is not measured.
CLOCK_ERROR = 1.0
CLOCK_STEP = 0.001  # seconds, to which it is rounded up
CLOCK_AGAIN = 60.0  # seconds after which it is recorded again, though it is as before

log = logger("forewarn")


class NodeUnusable(Exception):
    """The node cannot be started; the message says why."""


class HostNode(Component):
    """A node. When its context is entered, it shows what its journal contains, and follows control
    as soon as it can be reached. Guests are answered once everything is known."""

    def __init__(self, config: HostNodeConfig) -> None:
        """Raises NodeUnusable, or CannotListen."""
        super().__init__()
        self.config = config
        self.certificates: Certificates | None = None  # for connections to control on other hosts
        if config.tls is not None:
            self.certificates = Certificates(config.tls, config.authority, of_client=True)
            _check_name(config, config.tls)
        self._journal = _open_journal(config)
        self._stack.callback(self._journal.close)
        self.clock = FollowedClock()
        dials = [self._dial(place) for place in config.control]
        self.upstream = NodeUpstream(dials, config.host, self.clock, self._journal)
        self._callers = Callers(Identity.SOURCE)
        self.endpoint = MetadataApp(
            self.upstream,
            self._callers,
            config.endpoint.limits,
            find=Lookups(self.upstream.find),
            decisions_per_second=DECISIONS_PER_SECOND,
        )
        self.front: Front | None = None
        self.serving = asyncio.Event()  # set when guests are answered
        self.on_status: Callable[[], None] = lambda: None  # called when `status_line` has changed
        self.metadata_urls: list[str] = []
        self.status_url = ""
        self._trace: FileEventTrace | None = None
        self._disconnected_since: Time | None = None  # None while it is joined
        self._disconnected_machines: list[str] = []  # as recorded
        # Since when by how many seconds the clock may be wrong, as recorded, and when that was.
        self._clock_error: tuple[Time, float, float] = (0, 0.0, 0.0)

    def _dial(self, place: Address | Path) -> Dial:
        if isinstance(place, Path):
            return make_unix_dial(place)
        assert self.certificates is not None
        return make_tls_dial(place, self.certificates)

    async def _start(self) -> None:
        tasks = guard.Tasks(_log_failed_task)
        self._stack.push_async_callback(tasks.end)
        await self.upstream.restore()
        app: Any = self.endpoint
        record = self.config.endpoint.record
        if record is not None:
            self._trace = FileEventTrace(record, self.config.endpoint.rules, self.config.host)
            self._stack.callback(self._trace.close)
            self._stack.callback(self._end_trace)
            self._trace.continued(self._now())
            up = self.clock.error.since = self._now()
            self._trace.write("up", up, clock_error=CLOCK_ERROR)
            self.clock.on_error = self._record_clock
            app = Recorder(self.endpoint, self._callers, self.upstream, self._trace)
        self._became_disconnected(self._now())
        if self.upstream.synchronized.is_set():
            log.info(
                "guests are shown what this node was told before it was started again",
                host=self.config.host,
            )
        self.upstream.on_disconnected = self._on_disconnected
        if self.config.status is not None:
            await self._open_status(tasks)
        # Not in `tasks`: if it ends, the caller gets the error.
        self.following = asyncio.ensure_future(self._follow(app, tasks))  # noqa: TID251
        self._stack.push_async_callback(self._stop_following)
        tasks.start(self.upstream.report(), "reporter")
        tasks.start(self.upstream.watch(), "promise")
        if self.certificates is not None:
            tasks.start(self.certificates.watch(), "certificates")
            tls, authority = self.config.tls, self.config.authority
            assert tls is not None
            assert authority is not None
            renewal = CertificateRenewal(
                tls, authority, self.certificates, partial(name_problem, self.config.host)
            )
            self.upstream.wants_renewal = renewal.wanted
            self.upstream.on_renewed = renewal.take

    async def _follow(self, app: Any, tasks: guard.Tasks) -> None:
        """Follow control for ever, and serve guests once everything is known."""
        parts = guard.Tasks()  # whose errors the caller gets
        try:
            following = parts.start(self.upstream.run(), "connection to control")
            serving = parts.start(self._serve(app, tasks), "serving")
            await asyncio.wait([following, serving], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving  # raises why it has failed
            await following
        finally:
            await parts.end()

    async def _stop_following(self) -> None:
        self.following.cancel()
        await asyncio.wait([self.following])

    async def _serve(self, app: Any, tasks: guard.Tasks) -> None:
        await self.upstream.synchronized.wait()
        self.clock.error.forget_shown()  # nobody was answered
        config = self.config.endpoint
        sockets = self._open_sockets()
        hosts = [address.host for address in config.guest_addresses]
        guests = await serve_guests(
            *(config, app, self.endpoint, sockets, tasks, self._stack),
            outlived=lambda: bool(config.metadata_fds),
        )
        self.front = guests.front
        self.metadata_urls = [url(h, s) for h, s in zip(hosts, sockets, strict=True)]
        self.serving.set()
        self.on_status()

    def _open_sockets(self) -> list[socket.socket]:
        config = self.config.endpoint
        if config.metadata_fds:
            return [adopt(fd) for fd in config.metadata_fds]
        with all_or_none() as opened:
            for address in config.guest_addresses:
                opened.append(open_socket(address))
        return opened

    async def _open_status(self, tasks: guard.Tasks) -> None:
        assert self.config.status is not None
        listener = open_socket(self.config.status)
        self._stack.callback(listener.close)
        self.status_url = url(self.config.status.host, listener)
        pages = StatusPages(lambda: list(self.readings()), self.health, self.machines)
        await pages.serve(listener, tasks, self._stack)

    # Disconnected, and joined.

    def _now(self) -> Time:
        return self.upstream.now().at

    def _on_disconnected(self, disconnected: bool) -> None:
        now = self._now()
        if disconnected:
            late = guard.boottime() - self.upstream.leased_until
            self._became_disconnected(now - round(max(0.0, late) * SECOND))
            if not self.upstream.journal_problem:
                log.warning(
                    "control cannot be reached: guests are shown what this node was told, and"
                    " whatever else they ask for waits",
                    host=self.config.host,
                )
        else:
            if self._trace is not None and self._disconnected_machines:
                self._trace.joined(now, self.config.host, self._disconnected_machines)
            self._disconnected_since, self._disconnected_machines = None, []
            log.info("control has told this node everything", host=self.config.host)
        self.on_status()

    def _became_disconnected(self, at: Time) -> None:
        self._disconnected_since = at
        self._disconnected_machines = (
            sorted(self._callers.names()) if self._trace is not None else []
        )
        if self._trace is not None and self._disconnected_machines:
            self._trace.disconnected(at, self.config.host, self._disconnected_machines)

    def _record_clock(self) -> None:
        """Record by how much the clock may differ from control's, if more is known about it."""
        assert self._trace is not None
        since, seconds, now = self.clock.error.since, self.clock.error.seconds, guard.monotonic()
        if math.isinf(seconds):
            return
        error = math.ceil(seconds / CLOCK_STEP) * CLOCK_STEP
        last_since, last_error, recorded = self._clock_error
        known = since == last_since and last_error / 2 < error <= last_error
        if not known or now - recorded >= CLOCK_AGAIN:
            self._clock_error = since, error, now
            self._trace.write("clock", self._now(), since=since / SECOND, error=error)

    def _end_trace(self) -> None:
        assert self._trace is not None
        self._trace.write("down", self._now())
        self._trace.write("end", self._now())

    # For operators.

    def health(self) -> Health:
        """Return what is wrong, and what somebody should look at although guests are answered."""
        problems, warnings = {"guests": ""}, {}
        if self.upstream.journal_problem:
            warnings["journal"] = (
                f"it cannot be written, so control is not followed: {self.upstream.journal_problem}"
            )
        if self.certificates is not None and (problem := self.certificates.problem):
            warnings["certificate"] = f"{problem}: control accepts no new connection of this node"
        if self.upstream.certificate_problem:
            warnings["certificate of control"] = self.upstream.certificate_problem
        why = f" ({self.upstream.problem})" if self.upstream.problem else ""
        if not self.serving.is_set():
            problems["guests"] = f"{NOT_SYNCHRONIZED}{why}"
        elif self._disconnected_since is not None:
            warnings["control"] = (
                f"control could not be reached since {utc(self._disconnected_since)}{why}: guests"
                " are shown what this node was told until then"
            )
        return Health(problems, warnings)

    def machines(self) -> list[ListedMachine] | None:
        """Return the machines that are answered; None if they are not known yet."""
        known = self.upstream.synchronized.is_set()
        return list_machines(self.upstream.machines()) if known else None

    def status_line(self) -> str:
        """Return a summary for people, as in `systemctl status`."""
        health = self.health()
        reason = health.problems["guests"] or health.warnings.get("control", "joined")
        if journal := health.warnings.get("journal"):
            reason += f"; journal: {journal}"
        return f"host {self.config.host}: {reason}"

    def readings(self) -> Iterator[Sample]:
        """Yield the metrics of this node."""
        endpoint, now = self.endpoint, self._now()
        yield from endpoint.counts.readings(endpoint.connections.total, self.front)
        disconnected = (
            0 if self._disconnected_since is None else max(0, now - self._disconnected_since)
        )
        yield gauge(
            "forewarn_disconnected_seconds",
            "Time since control could be reached last; 0 while it can be",
            {(): disconnected / SECOND},
        )
        heard = self.upstream.heard
        yield gauge(
            "forewarn_control_silence_seconds",
            "Time since control sent something; no sample before it has",
            {} if heard is None else {(): max(0.0, guard.boottime() - heard)},
        )
        yield gauge(
            "forewarn_journal_failing",
            "1 if the journal cannot be written, so that control is not followed",
            {(): int(bool(self.upstream.journal_problem))},
        )
        yield gauge("forewarn_journal_bytes", "Size of the journal", {(): self._journal.size})
        if self.certificates is not None:
            yield certificate_reading(self.certificates.expires_unless_renewed)


def _check_name(config: HostNodeConfig, tls: Tls) -> None:
    """Check that the certificate names the host."""
    pair = examine(tls.certificate, tls.key, config.authority, of_client=True)
    if problem := name_problem(config.host, tls, pair):
        raise CertificateUnusable(problem)


def name_problem(host: str, tls: Tls, pair: Pair) -> str:
    """Return why a certificate that can be used is not that of this node, or ""."""
    hosts = [n.removeprefix(NODE_URI) for n in pair.names if n.startswith(NODE_URI)]
    if pair.problem or hosts == [host]:
        return ""
    return (
        f"{tls.certificate} is not for the node of host '{host}'; it needs the name"
        f" URI:{NODE_URI}{host}, and no other of this kind"
    )


def _open_journal(config: HostNodeConfig) -> Journal:
    try:
        config.journal.mkdir(mode=0o700, exist_ok=True)
        return Journal(config.journal, config.host)
    except JournalInUse as error:
        raise NodeUnusable(str(error)) from error
    except OSError as error:
        raise NodeUnusable(f"journal: {config.journal}: {error.strerror}") from error


def _log_failed_task(name: str, error: BaseException) -> None:
    log.error("a background task failed", task=name, exc_info=error)
