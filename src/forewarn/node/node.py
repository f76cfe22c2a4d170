"""The node: creates all parts of a service, connects them, starts them in order and stops them in
reverse order.

It is the same for `forewarn dev`, `forewarn serve` and a test. There are no decisions here, only
wiring.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from forewarn.core import Group, Machine, Time
from forewarn.core.registry import HostPut, HostRemoved
from forewarn.drivers.hosts.connections import DriverConnections
from forewarn.drivers.hosts.driver import HostsDriver
from forewarn.drivers.hosts.messages import DriverHello, DriverRenewed
from forewarn.drivers.port import Driver
from forewarn.drivers.watching import keep_watching
from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.metadata.endpoint.callers import Callers, Identity
from forewarn.metadata.endpoint.recorder import Recorder
from forewarn.metadata.faults.delay import DelayedAnswers
from forewarn.metadata.faults.inject import DisappearingEvents, FaultInjection
from forewarn.metadata.publishing.host_nodes import HostNodes
from forewarn.metadata.publishing.lost_commits import LostCommits
from forewarn.metadata.publishing.publisher import Publisher
from forewarn.metadata.upstream import LocalUpstream, SilentUpstream
from forewarn.node.component import Component
from forewarn.node.config import Address, ArmListener, Config
from forewarn.node.dev import on_loopback
from forewarn.node.listening.exposure import check_exposure, keep_checking_admin_tokens
from forewarn.node.listening.machine_sockets import MachinePorts, MachineSockets
from forewarn.node.listening.node_connections import open_node_listeners
from forewarn.node.listening.own_certificate import OwnCertificate
from forewarn.node.listening.serve import serve, serve_guests, url
from forewarn.node.listening.sockets import ANY_HOST, open_socket
from forewarn.node.listening.tls import Certificates
from forewarn.node.wiring import (
    apply_fleet,
    control_node,
    control_socket,
    follow_faults,
    guest_urls,
    has_machine_ports,
    make_driver,
    make_store,
    make_trace,
    metadata_sockets,
    record_reach,
    record_silence,
    warn_of_closed_windows,
    warn_of_database,
)
from forewarn.notify.config import Notify
from forewarn.service.access.access_tokens import AccessTokens
from forewarn.service.access.authority import Authority
from forewarn.service.access.machine_tokens import MachineTokens
from forewarn.service.access.oidc import Oidc
from forewarn.service.access.sessions import Sessions
from forewarn.service.access.tokens import Tokens
from forewarn.service.engine.catch_up import CatchUp
from forewarn.service.engine.clock import AWAY, Clock, Interruption, RealClock, VirtualClock
from forewarn.service.engine.executor import Executor
from forewarn.service.engine.feed import Feed
from forewarn.service.engine.host_waits import HostWaits
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.open_attempts import OpenAttempts
from forewarn.service.engine.publishing import Publishing
from forewarn.service.engine.returns import Returns
from forewarn.service.engine.scheduler import Scheduler
from forewarn.service.engine.virtual_time import VirtualTime
from forewarn.service.engine.writer import Writer
from forewarn.service.faults.event_faults import EventFaults
from forewarn.service.faults.registry import Faults
from forewarn.service.fleet.apply import FleetApply
from forewarn.service.fleet.follow import FollowedInventory
from forewarn.service.indexes.events import ActiveEvents
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.indexes.machines import MachineIndex
from forewarn.service.indexes.overview import Overview
from forewarn.service.indexes.polls import PollIndex
from forewarn.service.platform.configurations import Configurations
from forewarn.service.platform.enrollment import Enrollments
from forewarn.service.platform.guests import Guests
from forewarn.service.platform.halts import Halts
from forewarn.service.platform.hosts import Hosts
from forewarn.service.platform.platform import Platform, new_id
from forewarn.service.platform.removals import Removals
from forewarn.service.rollouts.gates import Gates
from forewarn.service.rollouts.host_work import HostWork
from forewarn.service.rollouts.reconciler import RolloutReconciler
from forewarn.service.rollouts.rollouts import Rollouts
from forewarn.service.telemetry.expiry import expiry_readings
from forewarn.service.telemetry.health import ServiceHealth
from forewarn.service.telemetry.leadership import leadership_readings
from forewarn.service.telemetry.metrics import ServiceMetrics
from forewarn.service.telemetry.reach import (
    drivers_warning,
    elsewhere_warning,
    inventory_warning,
    nodeless_warning,
    reach_readings,
    reach_warning,
)
from forewarn.service.telemetry.samples import Histograms, Sample
from forewarn.service.upkeep import after_restore
from forewarn.service.upkeep.clock_acceptance import ClockAcceptance
from forewarn.service.upkeep.history import History
from forewarn.service.upkeep.resume import resume
from forewarn.service.upkeep.saver import Saver
from forewarn.store import Store
from forewarn.store.engines import engine_name
from forewarn.store.port import Commit, Leadership, StoreFailed
from forewarn.support import extras, guard
from forewarn.support.logs import logger
from forewarn.verdict.observer import Observer

if TYPE_CHECKING:
    from forewarn.control.http.context import Context as OperatorsContext
    from forewarn.metadata.http.front import Front
    from forewarn.notify.notifications import Notifications

SIGHTINGS_EVERY = 30.0  # seconds between two looks of a follower at who has polled
SIGHTINGS_COST = 100  # and at least so many times as long as such a look takes
LOOPBACK_HOST = "127.0.0.1"  # has a socket even if each machine has its own

log = logger("forewarn")

_CONTROL_API = "the control API"
_ARM = "Azure Resource Manager's API"


class Node(Component):
    """A service, running while the context is entered: `async with Node(config) as node`.

    Store, clock and driver are made as the configuration says, unless they are passed in.
    """

    def __init__(
        self,
        config: Config,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        driver: Driver | None = None,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        super().__init__()
        self.config = config
        self.clock = clock or (
            RealClock(limits=config.clock)
            if config.virtual is None
            else VirtualClock(config.virtual)
        )
        self.store = store or make_store(config)
        self._driver = driver
        self._new_id = new_id
        self._opening = asyncio.Lock()  # held while sockets are opened after the start
        self._machine_sockets: MachineSockets | None = None  # if machines have some of their own
        self.virtual_time: VirtualTime | None = None  # only with a virtual clock
        self.catch_up: CatchUp | None = None  # with a virtual clock, and in tests in real time
        self.front: Front | None = None
        self.host_nodes: HostNodes | None = None  # only with nodes on hosts
        self._own: OwnCertificate | None = None  # only with an authority that is kept here
        self.nodes_address: Address | None = None  # to which those on other hosts connect
        self.metadata_urls: list[str] = []
        self.control_url = ""
        self.arm_url = ""  # of Azure Resource Manager's API
        self.control_names = config.control_names  # changed by a reload
        self.control_proxies = config.control_proxies
        self.certificates: Certificates | None = None  # of the control API
        self.node_certificates: Certificates | None = None  # for nodes on hosts
        self.arm_certificates: Certificates | None = None  # unless it has that of the control API
        self.control_app: Any = None
        self._context: OperatorsContext | None = None  # of the control API, once it is needed
        self.notifications: Notifications | None = None  # once something is to be notified

    async def advance(self, to: Time) -> None:
        """Advance a virtual clock. Returns when everything that became due is done and visible."""
        if self.virtual_time is None:
            raise TypeError("a real clock cannot be advanced")
        await self.virtual_time.advance(to)

    @property
    def metadata_url(self) -> str:
        """The first of the guests' URLs; empty if there is none yet."""
        return self.metadata_urls[0] if self.metadata_urls else ""

    def url_of(self, machine: Machine) -> str:
        """Return the URL at which requests are answered as those of this machine."""
        if (
            self.config.identity is Identity.SOURCE
            or not machine.addresses
            or not self.metadata_url
        ):
            return self.metadata_url
        if self._machine_sockets is not None:
            return f"http://{self._machine_sockets.address(machine)}"
        port = self.metadata_url.rpartition(":")[2]
        return f"http://{Address(machine.addresses[0], int(port))}"

    async def _start(self) -> None:
        if (lines := self.config.nodes) is not None and lines.tls is not None:
            self.node_certificates = Certificates(lines.tls, lines.authority)
        elif lines is not None:
            self._own = OwnCertificate(lines)
            self._stack.callback(self._own.close)
            self.node_certificates = self._own.certificates
        await self.store.open()
        self._stack.push_async_callback(self.store.close)
        self._create_parts()
        if self.node_certificates is not None:
            self._tasks.start(self.node_certificates.watch(), "the certificate for nodes")
        if self._own is not None:
            self._tasks.start(self._own.keep_renewing(), "renewing the certificate for nodes")
        leadership = self.store.leadership
        if leadership is None:
            await self._begin_deciding()
            self.health.deciding = True
            await self._listen(self._tasks)
        else:
            await warn_of_database(self.config)
            leadership.follow()
            await self._listen_to_operators_if_asked(self._tasks)
            self._tasks.start(self._take_over(leadership), "leadership")
            self._tasks.start(self._follow_sightings(), "sightings")
        self._tasks.start(self.health.keep_checking(self._tasks), "health")
        self.health.started = True
        self._stack.callback(self._begin_stop)
        if self.virtual_time is not None:
            self._stack.push_async_callback(self.virtual_time.end)

    async def _take_over(self, leadership: Leadership) -> None:
        """Wait until this process decides, and then do what others do at their start."""
        await leadership.take()
        try:
            await self._begin_deciding()
            await self._listen_to_guests_if_asked(self._tasks)
        except Exception as error:
            log.error("this control node could not begin to decide", exc_info=error)
            leadership.give_up(f"it could not begin to decide: {error}")
            return
        self._stack.callback(self._begin_stop)  # must run before the guests' server is stopped
        self.health.deciding = True
        log.info("this control node decides", term=leadership.term, commit=self.store.seq)

    async def _follow_sightings(self) -> None:
        """Read now and then, while another process decides, who has polled there."""
        while not self.health.deciding:
            began = guard.monotonic()
            with contextlib.suppress(StoreFailed):
                await self.poll_index.load()
            cost = guard.monotonic() - began
            await guard.pause(max(SIGHTINGS_EVERY, SIGHTINGS_COST * cost))

    def _create_parts(self) -> None:
        """Create everything, and read into memory what is stored. Nothing is decided yet."""
        config, store = self.config, self.store
        self.ledger = Ledger()
        self.poll_index = PollIndex(store)
        self.machine_index = MachineIndex(store)
        self.active_events = ActiveEvents(store)
        self.feed = Feed(store)
        self.metrics = ServiceMetrics(store, self.feed, self.clock, self.poll_index)
        self.clock.on_interruption(_log_interruption)
        self.host_index = HostIndex(store)
        self.host_index.load()
        self.host_index.placement.having = self.machine_index.at
        self.unreachable_hosts = self.host_index.unreachable
        self.overview = Overview(store, self.poll_index)
        self.publishing = Publishing()
        self.writer = Writer(
            *(store, self.clock, config.rules, self.ledger, self.host_index), self.publishing
        )
        background = self.writer.in_background()
        self.tokens = Tokens(store, self.writer, self.poll_index)
        self.sessions = Sessions(store, self.writer)
        self.observer = Observer() if config.observe else None
        trace = self.trace = make_trace(config, self.observer, self._stack)
        if trace is not None:
            self._stack.callback(trace.end, self.writer.now)
        self.scheduler = Scheduler(
            store, background, self.clock, self.ledger, self.host_index, self.poll_index.seen
        )
        open_attempts = OpenAttempts(self.scheduler, self.ledger, self.feed.report)
        driver = self.driver = self._driver or make_driver(config, store, open_attempts)
        self._stack.push_async_callback(driver.aclose)
        tasks = self._tasks = guard.Tasks(_log_failed_task)
        self._stack.push_async_callback(tasks.end)
        self.executor = Executor(
            *(store, background, driver, self.host_index, self.ledger, self.publishing, tasks),
            open_attempts,
        )
        if trace is not None:
            self.executor.on_impact = trace.impact
        self.host_waits = HostWaits(store, background, self.scheduler, self.host_index)
        self.executor.on_no_host = self.host_waits.add
        self.returns = Returns(store, self.poll_index, background, self.scheduler)
        self.faults = Faults(store, self.machine_index, self.writer.now, config.faults)
        event_faults = EventFaults(self.faults, store, self.writer, self.scheduler, self.poll_index)
        self.platform = Platform(
            store,
            self.writer,
            self.executor,
            self.poll_index,
            self.machine_index,
            self.host_index,
            self.active_events,
            self._new_id,
            event_faults if config.faults else None,
        )
        self.guests = Guests(store, self.writer, self.feed, self.poll_index, self.machine_index)
        event_faults.cancel_with(self.platform.cancel)
        self.removals = Removals(self.platform)
        self.hosts = Hosts(store, self.platform, self.host_index)
        own = None if self._own is None else self._own.authority
        self.enrollments = Enrollments(store, self.writer, own)
        gates = self.gates = Gates(config.gates)
        work = HostWork(store, background, self.executor, self.ledger, tasks)
        platform = self.platform.in_background()
        self.reconciler = RolloutReconciler(
            store,
            background,
            self.scheduler,
            platform,
            Hosts(store, platform, self.host_index),
            gates,
            work,
            self.ledger,
            tasks,
        )
        self.halts = Halts(store, self.platform)
        self.rollouts = Rollouts(store, self.platform, self.reconciler, gates, work)
        self.clock_acceptance = ClockAcceptance(store, self.writer, self.clock, self.poll_index)
        self.history = History(store, self.machine_index, self.writer, config.history)
        self.machine_index.load()
        self.active_events.load()
        self.metrics.fleet_counts.load()
        self._upstream = upstream = LocalUpstream(self.guests, store)
        if config.identities:
            upstream.machine_tokens = MachineTokens(config.identities, self.machine_index)
        virtual = isinstance(self.clock, VirtualClock)
        if virtual or (config.observe and config.identity is Identity.TARGET):
            record_poll = upstream.record_poll
            catch_up = CatchUp(store, self.ledger, record_poll, real_time=not virtual)
            self.catch_up, upstream.record_poll = catch_up, catch_up.polled
            follow_faults(self.faults, self.scheduler, catch_up)
            if isinstance(self.clock, VirtualClock):
                self.virtual_time = VirtualTime(
                    self.clock, self.scheduler, self.ledger, catch_up, tasks
                )
        callers = Callers(config.identity, config.speak_as)
        served = SilentUpstream(self.guests, store) if config.has_nodes else upstream
        held = None if store.leadership is None else store.leadership.held
        self.endpoint = MetadataApp(served, callers, config.limits, held)
        if self.catch_up is not None:
            self.catch_up.waiting = self.endpoint.extensions.waits_now
            self.catch_up.end_waits = self.endpoint.extensions.end_waits
        self.delayed_answers = DelayedAnswers(self.clock, self.scheduler, self.ledger)
        answering: MetadataApp | FaultInjection = self.endpoint
        if config.faults and config.identity is Identity.SOURCE:
            log.warning(
                "fault injection is enabled: admins can make requests and events fail on purpose"
            )
        if config.faults:
            answering = FaultInjection(
                self.endpoint, self.faults, event_faults, self.delayed_answers
            )
        self.app: Any = answering
        if trace:
            self.app = recorder = Recorder(answering, callers, upstream, trace)
            if self.catch_up is not None:
                record_silence(trace, recorder, self.catch_up, lambda: self.writer.now().at)
        if config.faults:
            self.app = DisappearingEvents(self.app, callers, self.faults, event_faults)
        prepare = on_loopback if config.identity is Identity.TARGET else None
        self.fleet_apply = FleetApply(
            store,
            self.writer,
            self.host_index,
            prepare,
            config.placement,
            config.removal_limit,
            config.address_rules,
        )
        self.inventory = FollowedInventory(
            *(store, platform, self.fleet_apply, self.host_index),
            groups=config.inventory_groups,
            restarts=config.restart_crashed,
        )
        self.executor.on_attempt = self.metrics.attempted
        self.health = ServiceHealth(
            *(store, self.scheduler, self.writer, self._endpoint_problem, driver.problem),
            self._host_warnings,
        )

    def _host_warnings(self) -> dict[str, str]:
        nodeless = nodeless_warning(self.host_index) if self.config.has_nodes else ""
        return {
            "state": self._went_back(),
            "hosts": reach_warning(self.unreachable_hosts),
            "nodes": nodeless,
            "drivers": drivers_warning(self.host_index.drivers),
            "placement": elsewhere_warning(self.host_index),
            "inventory": inventory_warning(self.host_index.sightings),
        }

    def _went_back(self) -> str:
        return self.host_nodes.lost_commits.problem if self.host_nodes else ""

    async def _begin_deciding(self) -> None:
        """Continue where the last process that decided has ended, and decide from now on."""
        config, store, tasks = self.config, self.store, self._tasks
        sightings, ends, answered = await resume(
            store, self.poll_index, self.clock, has_nodes=config.has_nodes
        )
        restored = await after_restore.take_up(store, self.writer, sightings, ends)
        await self.returns.load()  # nobody can ask for a decision yet
        if self.trace:
            engine = engine_name(config.state)
            self.trace.begin(store, self.clock, self.writer.now, engine=engine, answered=answered)
        if config.has_nodes:
            known = 0 if sightings.copied is not None else sightings.known
            lost_commits = LostCommits(store, known, restored)
            await lost_commits.begin()
            await self._start_publishing(tasks, lost_commits)
        self.unreachable_hosts.begin(self.writer.now().at)
        if self.trace:
            record_reach(self.trace, self.unreachable_hosts, self.writer.now)
        await self.driver.open()
        self._watch_machines(tasks)
        # Before anything new starts, so that nothing is resumed twice.
        self.executor.resume(restored)
        self.host_waits.resume()
        await apply_fleet(config, self.fleet_apply, self.machine_index)
        warn_of_closed_windows(store)
        saver = Saver(store, self.poll_index, self.writer, self.history)
        self._stack.push_async_callback(saver.save_all)
        if self.trace:
            self.trace.fleet(store, self.writer.now().at)
        await self.scheduler.begin()
        await self.reconciler.resume()
        tasks.start(self.scheduler.run(), "scheduler")
        tasks.start(saver.keep_saving(), "saver")
        tasks.start(saver.keep_pruning(), "pruner")
        await self.configure_notifications(config.notify)

    def _watch_machines(self, tasks: guard.Tasks) -> None:
        """Compare the inventory with what the driver sees of the machines, if that is wanted."""
        if self.config.inventory == "off":
            return
        if type(self.driver).watch is Driver.watch:
            log.warning("this driver does not report machines; nothing is compared (inventory)")
        sightings = self.host_index.sightings
        sightings.begin(self.machine_index, lambda: self.writer.now().at)
        tasks.start(keep_watching(self.driver, sightings.record), "watching the machines")
        if self.config.inventory == "follow":
            tasks.start(self.inventory.run(), "following the machines")

    async def configure_notifications(self, tables: Sequence[Notify]) -> None:
        """Follow the feed for these tables [[notify]], and for no others."""
        if self.notifications is None and not tables and not await self.store.notify_positions():
            return
        await self._notifications().configure(tables)

    def _notifications(self) -> Notifications:
        """Return what notifies, which most services do not need."""
        if self.notifications is None:
            from forewarn.notify.notifications import Notifications

            now = lambda: self.writer.now().at  # noqa: E731
            self.notifications = Notifications(self.store, self.feed, now, self._tasks)
        return self.notifications

    async def _start_publishing(self, tasks: guard.Tasks, lost_commits: LostCommits) -> None:
        """Publish changes to the nodes on hosts, which answer guests."""
        publisher = self.publishing.publisher = Publisher(self.store, self.ledger)
        tasks.start(publisher.run(), "publisher")
        tasks.start(publisher.watch(), "who is late")
        nodes = self.host_nodes = HostNodes(
            *(self._upstream, self.store, self.hosts, self.host_index, publisher),
            *(tasks, self.enrollments),
            lost_commits,
        )
        nodes.strays.record = self.config.record_moves
        await nodes.begin()
        self._stack.callback(nodes.close)
        drivers = self._driver_connections(tasks)
        for listener in open_node_listeners(self.config, self.node_certificates, nodes, drivers):
            self._stack.callback(listener.close)
            listener.accept(tasks)
            self.nodes_address = self.nodes_address or listener.address
        if self.nodes_address is not None:
            self.enrollments.listens_at(str(self.nodes_address))
        tasks.start(nodes.watch(), "nodes")

    def _driver_connections(self, tasks: guard.Tasks) -> DriverConnections | None:
        """Return what serves driver processes, if there may be any."""
        if not isinstance(self.driver, HostsDriver):
            return None
        connections = self.driver.connections
        connections.problem = self.enrollments.driver_problem
        connections.renew = self._renewed_driver
        drivers, sightings = self.host_index.drivers, self.host_index.sightings
        drivers.begin(lambda: self.writer.now().at)

        def on_change(hello: DriverHello, joined: bool) -> None:
            drivers.changed(hello.hosts, hello.driver, hello.version, joined=joined)
            sightings.lost(hello.hosts)

        self.driver.on_change = on_change

        def on_commit(commit: Commit, _: Mapping[str, Group]) -> None:
            for put in commit.puts:
                if isinstance(put, HostPut | HostRemoved):
                    connections.look_at(put.name if isinstance(put, HostRemoved) else put.host.name)

        self.store.on_commit(on_commit)
        self._stack.callback(connections.close)
        tasks.start(connections.watch(), "driver processes")
        return connections

    def _renewed_driver(self, host: str, certificate: bytes) -> DriverRenewed | None:
        renewed = self.enrollments.renew(host, certificate, driver=True)
        return DriverRenewed(renewed, self.enrollments.trusted) if renewed else None

    async def _listen(self, tasks: guard.Tasks) -> None:
        # The operators' sockets first: if one cannot be used, no guest is answered at all.
        operators = self._operators_socket(tasks) if self.config.control is not None else None
        arm = self._arm_socket(self.config.arm, tasks) if self.config.arm is not None else None
        await self._listen_to_guests_if_asked(tasks)
        if self.config.control is not None and operators is not None:
            await self._listen_to_operators(self.config.control, operators, tasks)
        if self.config.arm is not None and arm is not None:
            await self._listen_to_arm(self.config.arm, arm, tasks)

    async def _listen_to_operators_if_asked(self, tasks: guard.Tasks) -> None:
        if self.config.control is not None:
            listener = self._operators_socket(tasks)
            await self._listen_to_operators(self.config.control, listener, tasks)
        if self.config.arm is not None:
            listener = self._arm_socket(self.config.arm, tasks)
            await self._listen_to_arm(self.config.arm, listener, tasks)

    async def _listen_to_guests_if_asked(self, tasks: guard.Tasks) -> None:
        if self.config.metadata is not None:
            sockets = metadata_sockets(self.config, [LOOPBACK_HOST])
            self.metadata_urls = guest_urls(self.config, sockets)
            await self._listen_to_guests(sockets, tasks)

    async def open_metadata(self, address: Address) -> None:
        """Open the guests' sockets after the start, on loopback as `forewarn dev` does."""
        async with self._opening:
            if self.metadata_url:
                return
            config = msgspec.structs.replace(self.config, metadata=address)
            sockets = metadata_sockets(config, [LOOPBACK_HOST])
            self.metadata_urls = guest_urls(config, sockets)
            await self._listen_to_guests(sockets, self._tasks)

    async def _listen_to_guests(self, sockets: Sequence[socket.socket], tasks: guard.Tasks) -> None:
        guests = await serve_guests(
            *(self.config, self.app, self.endpoint, sockets, tasks, self._stack),
            outlived=lambda: bool(self.config.metadata_fds),
        )
        self.front = guests.front
        if not self.config.whole_loopback:
            return
        callers, machines = self.endpoint.callers, self.machine_index
        if has_machine_ports(self.config):
            asked = [address.port for address in self.config.guest_addresses] or [0]
            self._machine_sockets = MachinePorts(guests, callers, machines, asked)
        elif any(listener.getsockname()[0] != ANY_HOST for listener in sockets):
            ports = [listener.getsockname()[1] for listener in sockets]
            self._machine_sockets = MachineSockets(guests, callers, machines, ports)
        if self._machine_sockets is not None:
            self._machine_sockets.update()
            self.store.on_commit(self._machine_sockets.on_commit)

    async def open_control(self, address: Address) -> None:
        """Open the control API after the start: it takes most of a start's time, and many tests
        never need it."""
        async with self._opening:
            if self.control_url:
                return
            extras.need("server", _CONTROL_API)
            listener = open_socket(address)
            self._stack.callback(listener.close)
            await self._listen_to_operators(address, listener, self._tasks)
            self._stack.callback(self._begin_stop)  # must run before the API's server is stopped

    def accept_issuer(self, oidc: Oidc | None) -> None:
        """Accept the tokens of another OIDC issuer, or of none."""
        self.tokens.accept_issuer(oidc, self._tasks)

    def _operators_socket(self, tasks: guard.Tasks) -> socket.socket:
        extras.need("server", _CONTROL_API)
        listener = control_socket(self.config)
        self._stack.callback(listener.close)
        self.tokens.accept_issuer(self.config.oidc, tasks)
        check_exposure(listener, self.config, self.tokens)
        tasks.start(keep_checking_admin_tokens(self.config, self.tokens), "admin tokens")
        if self.config.tls is not None:
            self.certificates = Certificates(self.config.tls)
            tasks.start(self.certificates.watch(), "certificates")
        return listener

    async def _listen_to_operators(
        self, address: Address, listener: socket.socket, tasks: guard.Tasks
    ) -> None:
        # The import takes longer than everything before it; in a thread, polls are answered.
        await asyncio.to_thread(import_module, "forewarn.control.app")
        from forewarn.control.app import Api
        from forewarn.control.server.acceptor import acceptors
        from forewarn.control.server.protocol import OperatorsProtocol

        tls_wanted = self.certificates is not None
        self.control_url = url(address.host, listener, "https" if tls_wanted else "http")
        certificates = self.certificates
        tls = (lambda: certificates.context) if certificates else None
        self.control_app = Api(self._operators_context())
        acceptor = acceptors(tasks, self.config.operator_connections, tls)
        await serve(self.control_app, [listener], tasks, self._stack, OperatorsProtocol, acceptor)

    async def open_arm(self, arm: ArmListener) -> None:
        """Open Azure Resource Manager's API after the start, beside the control API."""
        async with self._opening:
            if not self.arm_url:
                listener = self._arm_socket(arm, self._tasks)
                await self._listen_to_arm(arm, listener, self._tasks)
                self._stack.callback(self._begin_stop)  # must run before its server is stopped

    def _arm_socket(self, arm: ArmListener, tasks: guard.Tasks) -> socket.socket:
        extras.need("server", _ARM)
        listener = open_socket(arm.address)
        self._stack.callback(listener.close)
        check_exposure(listener, self.config, self.tokens, setting="arm")
        if self.certificates is None or arm.tls != self.config.tls:
            self.arm_certificates = Certificates(arm.tls)
            tasks.start(self.arm_certificates.watch(), f"certificates of {_ARM}")
        return listener

    async def _listen_to_arm(
        self, arm: ArmListener, listener: socket.socket, tasks: guard.Tasks
    ) -> None:
        certificates = self.arm_certificates or self.certificates
        assert certificates is not None
        for module in ("forewarn.arm.app", "jwt"):  # the first login would have to wait for it
            await asyncio.to_thread(import_module, module)
        from forewarn.arm.app import ArmApp
        from forewarn.control.server.acceptor import acceptors
        from forewarn.control.server.protocol import OperatorsProtocol

        self.arm_url = url(arm.address.host, listener, "https")
        acceptor = acceptors(tasks, self.config.operator_connections, lambda: certificates.context)
        app = ArmApp(self._operators_context())
        await serve(app, [listener], tasks, self._stack, OperatorsProtocol, acceptor)

    def _operators_context(self) -> OperatorsContext:
        """Return what the control API and Azure Resource Manager's work with."""
        from forewarn.control.http.context import Context

        if self._context is not None:
            return self._context
        self._context = Context(
            store=self.store,
            platform=self.platform,
            hosts=self.hosts,
            enrollments=self.enrollments,
            overview=self.overview,
            rollouts=self.rollouts,
            halts=self.halts,
            configurations=Configurations(self.store, self.writer),
            history=self.history,
            clock_acceptance=self.clock_acceptance,
            removals=self.removals,
            fleet_apply=self.fleet_apply,
            inventory=self.inventory,
            tokens=self.tokens,
            sessions=self.sessions,
            access_tokens=AccessTokens(self.store, self.writer),
            machine_tokens=self._upstream.machine_tokens,
            faults=self.faults,
            observer=self.observer,
            feed=self.feed,
            metrics=self.metrics,
            health=self.health,
            host_names=lambda: self.control_names,
            proxies=lambda: self.control_proxies,
            metadata_urls=lambda: self.metadata_urls,
            arm_url=lambda: self.arm_url,
            metadata_url_of=self.url_of,
            next_due=self.scheduler.next_due,
            virtual_time=self.virtual_time,
            samples=self._samples,
            certificate_expiry=self._certificate_expiry,
            copy=self.store.copy,
            notifications=lambda: self.notifications,
            subscriptions=self._notifications,
            node=msgspec.structs.replace(control_node(self.config), address=self.control_url),
            started=guard.wall_us(),
            portal=self.config.ui,
        )
        return self._context

    def _samples(self) -> Iterable[Sample | Histograms]:
        """Yield the metrics of the service and of the endpoint."""
        yield from self.metrics.readings(
            self.writer.now(), self.scheduler, self.history.pruned, self.health
        )
        yield from leadership_readings(self.store.leadership)
        now, went_back = self.writer.now().at, bool(self._went_back())
        yield from reach_readings(self.host_index, now, went_back=went_back)
        yield from self.endpoint.counts.readings(self.endpoint.connections.total, self.front)
        yield from expiry_readings(self._certificate_expiry(), self.tokens.next_expiry)
        yield from self.faults.readings() if self.faults.allowed else ()
        yield from self.notifications.readings() if self.notifications else ()

    def _certificate_expiry(self) -> Time | None:
        """When the first certificate expires; None if there is none."""
        for_nodes: Certificates | Authority | None = self.node_certificates
        if self._own is not None:  # what it issues is renewed by itself
            for_nodes = self._own.authority.authority
        certificates = (self.certificates, for_nodes, self.arm_certificates)
        return min((c.expires for c in certificates if c is not None), default=None)

    def _begin_stop(self) -> None:
        """Release everything that waits, so that requests in progress can end."""
        if self.virtual_time is not None:
            self.virtual_time.stop()
        elif self.catch_up is not None:
            self.catch_up.stop()
        self.health.stopping = True
        self.delayed_answers.end()
        self.feed.end()

    def _endpoint_problem(self) -> str:
        listening = self.config.metadata is None or self.metadata_url
        return "" if listening else "the metadata endpoint does not listen yet"


def _log_interruption(interruption: Interruption) -> None:
    lost = interruption.lost / 1e6
    if interruption.what == AWAY:  # as at every start
        log.info(
            "for start_grace, no event starts because its NotBefore has passed, since no process"
            " has decided for a while",
            lost_seconds=lost,
        )
        return
    log.warning(
        "the service was interrupted: for start_grace, no event starts because its NotBefore has"
        " passed",
        why=interruption.what,
        lost_seconds=lost,
    )


def _log_failed_task(name: str, error: BaseException) -> None:
    log.error("a background task failed", task=name, exc_info=error)
