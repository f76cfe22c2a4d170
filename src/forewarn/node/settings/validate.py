"""Checks the settings and turns them into the configuration of a node. All problems are reported
at once, each with its place.

The only files that are read here are those that the settings name. Checks of the machine itself
are in `node.preflight`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, TypeVar

from forewarn.core.fleet import Placement
from forewarn.core.time import HOUR, MINUTE, SECOND, Durations
from forewarn.drivers.registry import HOSTS, DriverConfig
from forewarn.metadata.endpoint.limits import Limits
from forewarn.metadata.publishing.host_nodes import SHOWN_WITHIN
from forewarn.node.config import Address, Config, LocalConnection, NodeConnections, address_rules
from forewarn.node.listening.sockets import confined, local
from forewarn.node.settings import values
from forewarn.node.settings.driver_tables import driver_config
from forewarn.node.settings.model import (
    DEFAULT,
    INVENTORY,
    LOG_LEVELS,
    LOGS,
    ON_CRASH,
    PLACEMENTS,
    REPLICATED,
    UNREPORTED_MOVES,
    LoadedSettings,
    Origin,
    Settings,
    SettingsError,
)
from forewarn.node.settings.sources import gather
from forewarn.notify.config import MAX_TABLES, Notify
from forewarn.service.access.oidc import Oidc
from forewarn.service.engine.clock import STEP, ClockLimits
from forewarn.service.fleet import read
from forewarn.service.fleet.read import Fleet, FleetError
from forewarn.service.fleet.removal_limit import RemovalLimit
from forewarn.service.upkeep.history import HISTORY, HISTORY_LEAST
from forewarn.store.engines import State, is_url, parse_state
from forewarn.support.suggest import instead_of
from forewarn.support.text import in_words

AT_LEAST_ONE = (
    "max_connections_per_machine",
    "max_connections",
)
LEAST_SILENCE = MINUTE  # with less, a group could be disabled between two polls
LEAST_DOWNTIME = HOUR  # with less, a computer that was repaired or moved would be refused
LEAST_LEASE = 2 * SECOND  # with less, a short pause of a machine would make another one take over
LONGEST_LEASE = MINUTE  # with more, nobody decides for longer than most notices last
# What needs a single control node, and why.
ONE_PROCESS = {
    "fleet": "a control node with an old file would undo later changes when it takes over; use"
    " `forewarn apply`",
    "faults": "faults are kept in the memory of one process",
    "observe": "what guests do is kept in the memory of one process; use record = FILE and run"
    " 'forewarn verdict FILE…' with the files of all control nodes",
}
# What needs guests to be answered here, and why.
ANSWERS_GUESTS = {
    "metadata": "guests are answered by the nodes on their hosts; set it there",
    "faults": "faults cannot be injected in nodes",
    "observe": "requests to nodes cannot be observed; set record = FILE there",
}

T = TypeVar("T")
U = TypeVar("U")


def config(settings: Settings | LoadedSettings, *, with_fleet: bool = True) -> Config:
    """Return the configuration for some settings. Raises SettingsError with all problems.

    `with_fleet=False` does not read the fleet file, for a process that does not need it."""
    loaded = LoadedSettings(settings) if isinstance(settings, Settings) else settings
    return _Validation(loaded, with_fleet).config()


def load(
    path: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
) -> tuple[LoadedSettings, Config]:
    """Collect and check the settings. Raises SettingsError with all problems, of types and of
    values."""
    problems: tuple[str, ...] = ()
    try:
        loaded = gather(path, environment, flags)
    except SettingsError as error:
        problems, loaded = error.problems, error.usable or LoadedSettings(Settings())
    try:
        configuration = config(loaded)
    except SettingsError as error:
        problems += error.problems
    if problems:
        raise SettingsError(*problems)
    return loaded, configuration


class _Validation:
    """One check of all settings. A problem is remembered, and the check goes on with a default."""

    def __init__(self, loaded: LoadedSettings, with_fleet: bool) -> None:
        self._loaded = loaded
        self._settings = loaded.settings
        self._with_fleet = with_fleet
        self._problems: list[str] = []

    def config(self) -> Config:
        settings = self._settings
        self._check_simple_values()
        nodes, local_node = self._get(
            "nodes", lambda: values.node_connections(settings), (None, None)
        )
        guests = self._get("metadata", self._metadata, (Address("127.0.0.1", 0),))
        control = self._get("control", self._control, Address("127.0.0.1", 0))
        for metadata in guests:
            if values.collide(metadata, control):
                self._problem(
                    "control",
                    f"control = {control}: this is an address for guests (metadata = {metadata});"
                    " choose another port for operators",
                )
        if nodes is not None and values.collide(nodes.address, control):
            self._problem(
                "nodes",
                f"nodes = {nodes.address}: this is the address for operators (control = {control});"
                " choose another port for nodes",
            )
        arm = self._get("arm", lambda: values.arm(settings), None)
        if arm is not None:
            self._check_arm_address(arm.address, guests, control, nodes)
        state = self._get("state", self._state, Path(Settings().state))
        groups = settings.inventory_groups
        configuration = Config(
            fleet=self._get("fleet", lambda: self._fleet(guests, nodes, local_node), None),
            fleet_file=settings.fleet,
            force_fleet=False,
            placement=self._get("placement", self._placement, None),
            inventory=settings.inventory,
            inventory_groups=(groups,) if isinstance(groups, str) else tuple(groups),
            restart_crashed=settings.on_crash == "restart",
            record_moves=self._settings.unreported_moves == "record",
            removal_limit=self._get("max_removals", self._removal_limit, None),
            state=state,
            name=settings.name,
            lease=self._get("lease", self._lease, LEAST_LEASE),
            replicated=settings.replicated,
            local_directory=Path(settings.local_directory),
            rules=Durations(
                until_heard=True,
                silence=self._duration("silence", LEAST_SILENCE),
                start_grace=self._duration("start_grace"),
                enable_delay=self._duration("enable_delay"),
                telling=round(SHOWN_WITHIN * SECOND) if settings.nodes else 0,
            ),
            clock=ClockLimits(
                step=self._duration("max_clock_step", STEP),
                downtime=self._duration("max_downtime", LEAST_DOWNTIME),
            ),
            limits=self._limits(),
            history=self._get("history", self._history, HISTORY),
            faults=settings.faults,
            ui=settings.ui,
            observe=settings.observe,
            front=settings.front,
            metadata=next(iter(guests), None),
            more_metadata=guests[1:],
            control=control,
            control_names=self._get("control_names", self._names, ()),
            control_proxies=self._get("control_proxies", self._proxies, ()),
            tls=self._get("tls_certificate", lambda: values.tls(settings), None),
            allow_plain_control=settings.allow_plain_control,
            arm=arm,
            identities=self._get("identities", lambda: values.identities(settings), b""),
            nodes=nodes,
            local_node=local_node,
            record=Path(settings.record) if settings.record else None,
            driver=self._driver(),
            gates=self._gates(),
            notify=self._notify(),
            oidc=self._oidc(),
        )
        if self._problems:
            raise SettingsError(*self._problems)
        return configuration

    def _problem(self, key: str, message: str, origin: Origin | None = None) -> None:
        self._problems.append((origin or self._loaded.origin(key)).prefix(message))

    def _get(self, key: str, read: Callable[[], T], fallback: U) -> T | U:
        """Return what `read` returns, or the fallback if it finds a problem."""
        try:
            return read()
        except SettingsError as error:
            for problem in error.problems:
                self._problem(key, problem)
            return fallback

    def _duration(self, key: str, least: int = 0) -> int:
        text: str = getattr(self._settings, key)
        return self._get(key, lambda: values.duration(key, text, least), max(1, least))

    def _placement(self) -> Placement | None:
        text = self._settings.placement
        return Placement(text) if text in PLACEMENTS and text else None

    def _removal_limit(self) -> RemovalLimit | None:
        text = self._settings.max_removals
        limit = RemovalLimit.parse(text)
        if limit is None and text.strip():
            raise SettingsError(
                f"max_removals = '{text}': must be a number of machines such as 20, a percentage"
                " such as 10%, or both, separated by a comma; empty means no limit"
            )
        return limit

    def _check_simple_values(self) -> None:
        settings = self._settings
        simple = (
            ("log", LOGS),
            ("log_level", LOG_LEVELS),
            ("placement", PLACEMENTS),
            ("unreported_moves", UNREPORTED_MOVES),
            ("inventory", INVENTORY),
            ("on_crash", ON_CRASH),
            ("replicated", REPLICATED),
        )
        for key, choices in simple:
            value = getattr(settings, key)
            if value not in choices:
                self._problem(key, f"{key} = '{value}': {instead_of(value, choices)}")
        if settings.on_crash == "restart" and settings.inventory != "follow":
            self._problem("on_crash", 'on_crash = "restart" needs inventory = "follow"')
        for key in AT_LEAST_ONE:
            if getattr(settings, key) < 1:
                self._problem(key, f"{key} must be at least 1")
        if settings.throttle < 0:
            self._problem("throttle", "throttle must not be negative; 0 means no limit")
        if is_url(settings.state):
            self._check_one_process()
        if settings.nodes:
            default = Settings()
            for key, why in ANSWERS_GUESTS.items():
                written = key == "metadata" and self._loaded.origin(key) is not DEFAULT
                if written or getattr(settings, key) != getattr(default, key):
                    self._problem(key, f"{key} cannot be combined with nodes: {why}")
        if settings.traces and not values.is_url(settings.traces):
            self._problem(
                "traces",
                f"traces = '{settings.traces}': must be the URL of an OTLP receiver over HTTP, for"
                " example http://127.0.0.1:4318",
            )

    def _check_one_process(self) -> None:
        """Refuse what needs a single control node."""
        for key, why in ONE_PROCESS.items():
            if getattr(self._settings, key):
                self._problem(key, f"{key} cannot be combined with a state in PostgreSQL: {why}")

    def _metadata(self) -> tuple[Address, ...]:
        if self._settings.nodes:
            return ()
        configured = self._settings.metadata
        texts = [configured] if isinstance(configured, str) else configured
        addresses = values.guest_addresses(texts)
        for metadata in addresses:
            if not self._settings.allow_other_addresses and not confined(metadata.host):
                raise SettingsError(
                    f"metadata = {metadata}: guests are identified by their address alone, so the"
                    " endpoint must be bound to a link-local or loopback address; set"
                    " allow_other_addresses = true to allow others"
                )
        return addresses

    def _control(self) -> Address:
        control = values.address("control", self._settings.control)
        plain = not self._settings.tls_certificate and not self._settings.allow_plain_control
        if plain and not local(control.host):
            raise SettingsError(
                f"control = {control}: beyond loopback, tokens would be sent in the clear; set"
                " tls_certificate and tls_key, or allow_plain_control = true if something else"
                " protects the connection"
            )
        return control

    def _check_arm_address(
        self,
        arm: Address,
        guests: Iterable[Address],
        control: Address,
        nodes: NodeConnections | None,
    ) -> None:
        others = [("metadata", address, "an address for guests") for address in guests]
        others.append(("control", control, "the address for operators"))
        if nodes is not None:
            others.append(("nodes", nodes.address, "the address for nodes"))
        for key, address, what in others:
            if values.collide(arm, address):
                self._problem(
                    "arm", f"arm = {arm}: this is {what} ({key} = {address}); choose another port"
                )

    def _names(self) -> tuple[str, ...]:
        names = tuple(self._settings.control_names or ())
        for name in names:
            if not re.fullmatch(r"[A-Za-z0-9._:-]{1,253}", name, re.ASCII):
                raise SettingsError(
                    f"control_names: '{name[:80]}' is not a host name; write it without scheme"
                    " and port, for example forewarn.example.net"
                )
        return names

    def _proxies(self) -> tuple[IPv4Network | IPv6Network, ...]:
        try:
            return tuple(map(ip_network, self._settings.control_proxies or ()))
        except ValueError as error:
            raise SettingsError(
                f"control_proxies: {error}; write the addresses or networks of reverse proxies,"
                ' for example ["10.0.0.5", "10.1.0.0/24"]'
            ) from None

    def _history(self) -> int | None:
        text = self._settings.history
        if not text.strip():
            return None
        duration = values.duration("history", text)
        if duration < HISTORY_LEAST:
            raise SettingsError(
                f"history = '{text}': must be at least {in_words(HISTORY_LEAST)};"
                ' write for example 90d, or "" to keep it forever'
            )
        return duration

    def _state(self) -> State:
        try:
            return parse_state(self._settings.state)
        except ValueError as error:
            raise SettingsError(f"state: {error}") from error  # a URL may have a password

    def _lease(self) -> int:
        lease = values.duration("lease", self._settings.lease, LEAST_LEASE)
        if lease > LONGEST_LEASE:
            raise SettingsError(
                f"lease = '{self._settings.lease}': must be at most {in_words(LONGEST_LEASE)}"
            )
        return lease

    def _fleet(
        self,
        guests: tuple[Address, ...],
        nodes: NodeConnections | None,
        local_node: LocalConnection | None,
    ) -> Fleet | None:
        if not self._settings.fleet or not self._with_fleet:
            return None
        try:
            rules = address_rules(guests, nodes, local_node)
            return read.load(Path(self._settings.fleet), rules)
        except FleetError as error:
            raise SettingsError(*str(error).splitlines()) from error

    def _limits(self) -> Limits:
        settings = self._settings
        return Limits(
            max_connections_per_machine=settings.max_connections_per_machine,
            max_connections=settings.max_connections,
            throttle=settings.throttle,
        )

    def _driver(self) -> DriverConfig:
        driver = driver_config(self._loaded, self._problem)
        if driver.name == HOSTS and not self._settings.nodes:
            self._problem(
                "driver",
                f'driver = "{HOSTS}" needs nodes: the address to which driver processes connect',
            )
        return driver

    def _notify(self) -> tuple[Notify, ...]:
        tables = self._settings.notify or []
        if len(tables) > MAX_TABLES:
            self._problem("notify", f"notify: there are {len(tables)} tables; at most {MAX_TABLES}")
        names: set[str] = set()
        for index, table in enumerate(tables):
            problems = list(table.problems())
            if table.name in names:
                problems.append(("name", "another table has the same name"))
            names.add(table.name)
            for key, problem in problems:
                place = f"notify '{table.name[:80]}'{f': {key}' if key else ''}"
                self._problem(f"notify.{index}", f"{place}: {problem}")
        return tuple(tables)

    def _oidc(self) -> Oidc | None:
        oidc = self._settings.oidc
        for key, problem in oidc.problems() if oidc else ():
            self._problem("oidc", f"oidc.{key}: {problem}")
        return oidc

    def _gates(self) -> dict[str, tuple[str, ...]]:
        gates: dict[str, tuple[str, ...]] = {}
        for name, command in (self._settings.gates or {}).items():
            try:
                gates |= values.gates({name: command})
            except SettingsError as error:
                self._problem(f"gates.{name}", str(error))
        return gates
