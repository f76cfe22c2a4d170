"""Two hosts with libvirt and QEMU, `h1` and `h2`, and control: three network namespaces. Each host
has a libvirtd, `forewarn node` at 169.254.169.254 and `forewarn driver`, all of them processes that
can be killed. Their guests are emulated: they run a kernel from Debian, and poll.

Only within `make test-hosts`: it shows them libvirt and QEMU, and ends whatever is still running.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import libvirt

from forewarn_libvirt import events
from helpers.certificates import Authority
from helpers.control_nodes import Response, ask
from helpers.guest_firewall import NFT, dropped, give, within
from helpers.netns import METADATA_ADDRESS, Namespace
from helpers.paths import ROOT
from helpers.process import Running
from helpers.serve_process import FOREWARN
from helpers.waiting import LIMIT, until

CONTROL = "10.88.0.1"
HOSTS = {"h1": "10.88.0.11", "h2": "10.88.0.12"}
GATEWAY = "10.77.0.1"  # of guests, on both hosts: a guest that moves does not notice
BRIDGE_MAC = "02:77:00:00:00:01"
PAGE = ROOT / "docs/operate/libvirt.md"
SHARED = Path("/srv/shared")  # as docs/operate/libvirt.md has it
API = "http://127.0.0.1:8170"
MIGRATION_PORTS = "49152-49215"  # at which libvirt has QEMU of a target listen
MEMORY, IDLE_MEMORY = 96, 16  # MiB of a guest, and of one that has nothing to boot


class Computer(NamedTuple):
    """What an emulated computer is like."""

    emulator: str
    machine: str
    cpu: str
    features: str
    console: str


_COMPUTERS = {
    "x86_64": Computer("qemu-system-x86_64", "pc", "qemu64", "<acpi/>", "ttyS0"),
    "aarch64": Computer(
        "qemu-system-aarch64", "virt", "cortex-a57", "<gic version='2'/>", "ttyAMA0"
    ),
}
# Those that a network card needs, in an order in which they can be loaded.
_MODULES = (
    *("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("failover", "net_failover", "virtio_net"),
)

# Polls for ever, and approves what is Scheduled. Each poll is a line on the console: the boot id,
# the seconds that the guest has been up, the date of the answer, and the document, or `-`.
_INIT = r"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /tmp
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
for module in MODULES; do [ ! -e /$module.ko ] || insmod /$module.ko; done
for word in $(cat /proc/cmdline); do
    case $word in address=*) address=${word#address=} ;; esac
done
ip link set eth0 up
ip address add "$address/24" dev eth0
ip route add METADATA via GATEWAY
boot=$(cat /proc/sys/kernel/random/boot_id)
target='/metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1'
headers='Host: METADATA\r\nMetadata: true\r\nConnection: close\r\n'
ask() { timeout 20 nc METADATA 80 | tr -d '\r'; }
while :; do
    printf "GET $target\r\n$headers\r\n" | ask > /tmp/answer
    read -r up _ < /proc/uptime
    date=$(sed -n 's/^[Dd]ate: //p' /tmp/answer)
    document=$(sed -n '/^{/p' /tmp/answer)
    echo "poll $boot $up ${date:--} | ${document:--}" > /dev/console
    for id in $(sed 's/},{/\n/g' /tmp/answer |
        sed -n 's/.*"EventId":"\([^"]*\)","EventStatus":"Scheduled".*/\1/p'); do
        body="{\"StartRequests\":[{\"EventId\":\"$id\"}]}"
        printf "POST $target\r\n${headers}Content-Length: ${#body}\r\n\r\n$body" | ask > /dev/null
    done
    sleep 1
done
"""

_DOMAIN = """
<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><metadata>{metadata}</metadata>
<memory unit='MiB'>{memory}</memory><vcpu>1</vcpu>
<os><type machine='{computer.machine}'>hvm</type>{boot}</os>
<features>{computer.features}</features><cpu mode='custom'><model>{computer.cpu}</model></cpu>
<devices><emulator>/usr/bin/{computer.emulator}</emulator><controller type='usb' model='none'/>
{devices}<memballoon model='none'/></devices></domain>
"""
_BOOT = """<kernel>{shared}/vmlinuz</kernel><initrd>{shared}/initrd</initrd>
<cmdline>console={console} quiet panic=-1 address={address}</cmdline>"""
_DEVICES = """<interface type='bridge'><mac address='{mac}'/><source bridge='br0'/>
<model type='virtio'/><rom enabled='no'/></interface>
<serial type='file'><source path='{console}' append='on'/></serial>"""

# What a host has for itself: the directories of its libvirt.
_LIBVIRTD = """
for directory in run lib cache log; do
    path=/var/$directory/libvirt
    [ $directory != run ] || path=/run/libvirt
    mkdir -p "$path"
    mount --bind "$1/$directory" "$path"
done
mkdir -p /etc/libvirt
mount --bind "$1/etc" /etc/libvirt
exec libvirtd --listen --config "$1/etc/libvirtd.conf" --pid-file "$1/run/libvirtd.pid"
"""
_LIBVIRTD_SETTINGS = """
listen_tls = 1
listen_tcp = 0
listen_addr = "{address}"
key_file = "{pair.key}"
cert_file = "{pair.certificate}"
ca_file = "{authority}"
auth_unix_rw = "none"
auth_unix_ro = "none"
host_uuid = "{uuid}"
log_outputs = "1:file:{directory}/log/libvirtd.log"
log_filters = "2:qemu.qemu_monitor"
"""
_QEMU_SETTINGS = """
user = "root"
group = "root"
dynamic_ownership = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
"""

_CONTROL_SETTINGS = """
state = "state.db"
fleet = "fleet.json"
record = "control.jsonl"
nodes = "{address}:8171"
nodes_certificate = "{pair.certificate}"
nodes_key = "{pair.key}"
nodes_authority = "{authority}"
driver = "hosts"
log = "json"
"""
_NODE_SETTINGS = """
host = "{host}"
control = "{address}:8171"
certificate = "{pair.certificate}"
key = "{pair.key}"
authority = "{authority}"
journal = "{directory}/journal"
record = "{directory}/node.jsonl"
log = "json"
"""
_DRIVER_SETTINGS = """
host = "{host}"
control = "{address}:8171"
certificate = "{pair.certificate}"
key = "{pair.key}"
authority = "{authority}"
directory = "{directory}/driver"
log = "json"
"""
# Guests have nothing that would shut them down.
_MORE_DRIVER_SETTINGS = """
shutdown = "0s"
"""


class Poll(NamedTuple):
    """What a guest has written about a poll."""

    boot: str
    uptime: float
    date: str  # of the answer; `-`: there was none
    document: dict[str, Any] | None

    def status(self, event: str) -> str:
        """Return the status of an event, or "" where the guest does not see it."""
        events = (self.document or {}).get("Events", [])
        return next((e["EventStatus"] for e in events if e["EventId"] == event), "")


_POLL = re.compile(r"poll (\S+) ([\d.]+) (.+?) \| (-|\{.*\})")


class Guest:
    """A domain whose kernel polls, and what it has written on its console."""

    def __init__(self, name: str, number: int, console: Path) -> None:
        self.name = name
        self.number = number
        self.address = f"10.77.0.{number}"
        self.mac = f"52:54:00:77:00:{number:02x}"
        self.uuid = str(uuid.UUID(int=number))
        self.console = console

    def polls(self) -> list[Poll]:
        if not self.console.exists():
            return []
        lines = self.console.read_text(errors="replace").splitlines()
        found = [match for line in lines if (match := _POLL.search(line))]
        return [
            Poll(boot, float(up), date, None if text == "-" else json.loads(text))
            for boot, up, date, text in (match.groups() for match in found)
        ]

    def boots(self) -> list[str]:
        return list(dict.fromkeys(poll.boot for poll in self.polls()))

    def last(self) -> Poll:
        return self.polls()[-1]

    def until_seen(self, event: str, status: str) -> Poll:
        """Wait until the guest has seen an event in a status."""

        def seen() -> Poll | None:
            return next((poll for poll in self.polls() if poll.status(event) == status), None)

        poll = until(seen, f"{event} as {status} in {self.name}")
        assert poll is not None
        return poll

    def until_answered(self) -> None:
        until(lambda: any(poll.document for poll in self.polls()), f"a poll of {self.name}")

    def until_polled(self, more: int = 2) -> None:
        before = len(self.polls())
        until(lambda: len(self.polls()) >= before + more, f"polls of {self.name}")


class Host:
    """A network namespace with a bridge for guests, and the processes in it."""

    def __init__(self, name: str, hosts: Hosts) -> None:
        self.name = name
        self.namespace = Namespace(name)
        self.directory = hosts.directory / name
        self._hosts = hosts
        self.libvirtd: Running
        self.node: Running
        self.driver: Running
        self.connection: Any = None
        for part in ("run", "lib/qemu", "cache", "log", "etc/qemu", "journal", "driver"):
            (self.directory / part).mkdir(parents=True)
        (self.directory / "lib").chmod(0o755)
        self._write_settings()

    def _write_settings(self) -> None:
        directory, authority = self.directory, self._hosts.authority
        values = {
            "host": self.name,
            "address": CONTROL,
            "authority": authority.path,
            "directory": directory,
        }
        identity = uuid.uuid5(uuid.NAMESPACE_DNS, self.name)
        (directory / "etc/libvirtd.conf").write_text(
            _LIBVIRTD_SETTINGS.format(
                address=HOSTS[self.name],
                pair=authority.issue(self.name),
                authority=authority.path,
                uuid=identity,
                directory=directory,
            )
        )
        (directory / "etc/qemu.conf").write_text(_QEMU_SETTINGS)
        for name, text in (("node", _NODE_SETTINGS), ("driver", _DRIVER_SETTINGS)):
            pair = authority.issue(f"forewarn:{name}:{self.name}")
            more = shown_driver_settings() + _MORE_DRIVER_SETTINGS if name == "driver" else ""
            (directory / f"{name}.toml").write_text(text.format(pair=pair, **values) + more)

    def build_bridge(self, ip: Any) -> None:
        ip.link("add", ifname="br0", kind="bridge", address=BRIDGE_MAC, br_forward_delay=0)
        [bridge] = ip.link_lookup(ifname="br0")
        ip.link("set", index=bridge, state="up")
        [loopback] = ip.link_lookup(ifname="lo")
        ip.addr("add", index=loopback, address=METADATA_ADDRESS, prefixlen=32)

    @property
    def uri(self) -> str:
        return f"qemu+unix:///system?socket={self.directory}/run/libvirt-sock"

    def start_libvirtd(self) -> None:
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", _LIBVIRTD, "sh"]
        self.libvirtd = self.namespace.popen([*enter, self.directory])
        until(self._opened, f"the libvirt of {self.name}")

    def _opened(self) -> bool:
        if self.libvirtd.process.poll() is not None:
            raise self.libvirtd.failure("libvirtd has ended")
        try:
            self.connection = libvirt.open(self.uri)
        except libvirt.libvirtError:
            return False
        return True

    def start_node(self) -> None:
        self.node = self._started("node")

    def start_driver(self) -> None:
        self.driver = self._started("driver")

    def _started(self, command: str) -> Running:
        return self._hosts.started(self.namespace, command, self.directory / f"{command}.toml")

    def domain(self, name: str) -> Any:
        """Return a domain of this host, or None."""
        try:
            return self.connection.lookupByName(name)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
            return None

    @contextlib.contextmanager
    def unheard(self, address: str) -> Iterator[None]:
        """Have nothing reach the host that a guest sends from this address."""
        with self.rule("unheard", f"ip saddr {address} drop"):
            yield

    @contextlib.contextmanager
    def held(self) -> Iterator[Callable[[], bool]]:
        """Hold migrations to this host where memory is about to be copied. Yields whether there is
        one."""
        with self.rule("held", f"tcp dport {MIGRATION_PORTS} counter name found drop"):
            yield lambda: bool(dropped(self.namespace))

    @contextlib.contextmanager
    def rule(self, table: str, rule: str) -> Iterator[None]:
        """Have a rule for what comes to this host."""
        for words in (
            f"add table inet {table}",
            f"add counter inet {table} found",
            f"add chain inet {table} input {{ type filter hook input priority 0; }}",
            f"add rule inet {table} input {rule}",
        ):
            self.namespace.run([NFT, words])
        try:
            yield
        finally:
            self.namespace.run([NFT, f"delete table inet {table}"])

    def phase(self, name: str) -> str:
        """Return how far libvirt has written down that the migration of a machine is."""
        written = (self.directory / f"run/qemu/{name}.xml").read_text()
        return "".join(re.findall(r" phase='(\w+)'", written))

    def crash(self, name: str) -> None:
        """Kill the QEMU of a machine, and wait until libvirt knows."""
        pid = int((self.directory / f"run/qemu/{name}.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        until(lambda: not self.domain(name).isActive(), f"the end of {name}")


class Hosts:
    def __init__(self, directory: Path, settings: str = "", *, bare: bool = False) -> None:
        """With `bare`, the hosts have a libvirt only, and there is no control."""
        self.directory = directory
        self._settings = settings  # more of them, of control
        self._bare = bare
        self.shared = SHARED
        self.authority = Authority(directory)
        self.hosts: dict[str, Host] = {}
        self.control: Running
        self.guests: list[Guest] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Hosts:
        events.run()
        with contextlib.ExitStack() as undo:
            self._mount_shared()
            undo.callback(subprocess.run, ["umount", "--lazy", "/srv"], check=True)
            _write_guest(self.shared)
            self._write_etc()
            self.outside = Namespace("control")
            undo.callback(self.outside.close)
            for name in HOSTS:
                self.hosts[name] = Host(name, self)
                undo.callback(self.hosts[name].namespace.close)
            self._connect()
            for host in self.hosts.values():
                host.start_libvirtd()
            if not self._bare:
                self._start()
            self._stack = undo.pop_all()
        return self

    def _start(self) -> None:
        pair = self.authority.issue(CONTROL)
        values = {"address": CONTROL, "pair": pair, "authority": self.authority.path}
        (directory := self.directory / "control").mkdir()
        (directory / "serve.toml").write_text(_CONTROL_SETTINGS.format(**values) + self._settings)
        (directory / "fleet.json").write_text(json.dumps({"hosts": [*HOSTS], "groups": []}))
        self.start_control()
        for host in self.hosts.values():
            host.start_node()
            host.start_driver()
        until(self.connected, "the nodes and driver processes of both hosts")

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _mount_shared(self) -> None:
        """Make a directory that all hosts have: in the mount namespace of the tests."""
        subprocess.run(["mount", "--types", "tmpfs", "none", "/srv"], check=True)
        SHARED.mkdir()

    def _write_etc(self) -> None:
        """Write what libvirt expects: names of hosts, its user, and the certificate with which it
        connects to another host."""
        lines = {
            "hosts": "".join(f"{address} {name}\n" for name, address in HOSTS.items()),
            "passwd": "libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin\n",
            "group": "libvirt-qemu:x:64055:\n",
        }
        for name, text in lines.items():
            with (Path("/etc") / name).open("a") as file:
                file.write(text)
        pair = self.authority.issue("libvirt-client")
        for path, source in (
            ("CA/cacert.pem", self.authority.path),
            ("libvirt/clientcert.pem", pair.certificate),
            ("libvirt/private/clientkey.pem", pair.key),
        ):
            target = Path("/etc/pki") / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    def _connect(self) -> None:
        def build(ip: Any) -> None:
            ip.link("add", ifname="br0", kind="bridge", br_forward_delay=0)
            [bridge] = ip.link_lookup(ifname="br0")
            ip.link("set", index=bridge, state="up")
            for name, host in self.hosts.items():
                inside = {"ifname": "up0", "net_ns_fd": host.namespace.fd}
                ip.link("add", ifname=name, kind="veth", peer=inside, master=bridge, state="up")

        def up(ip: Any) -> None:
            ip.link("set", index=ip.link_lookup(ifname="up0")[0], state="up")

        within(self.outside, build)
        give(self.outside, "br0", CONTROL, 24)
        for name, host in self.hosts.items():
            give(host.namespace, "up0", HOSTS[name], 24)
            within(host.namespace, up)
            within(host.namespace, host.build_bridge)
            give(host.namespace, "br0", GATEWAY, 24)

    # Processes.

    def start_control(self) -> None:
        self.control = self.started(self.outside, "serve", self.directory / "control/serve.toml")

    def started(self, place: Namespace, command: str, settings: Path) -> Running:
        environment = {"XDG_RUNTIME_DIR": str(self.directory)}
        words = [*FOREWARN, command, "--config", str(settings)]
        running = place.popen(words, env=environment, cwd=settings.parent)
        assert running.line().startswith("ready ")
        return running

    def kill(self, running: Running) -> None:
        running.process.kill()
        running.process.wait()

    # What operators do and see.

    def post(self, path: str, body: object) -> Any:
        answer = self.api("POST", path, body)
        assert answer.status in (200, 201, 202), answer.body
        return answer.json()

    def api(self, method: str, path: str, body: object = None) -> Response:
        return self.outside.call(ask, API, method, path, body)

    def connected(self) -> bool:
        listed = self.api("GET", "/v1/hosts").json()
        states = [(host["node"] or {}).get("state") for host in listed]
        states += [(host["driver"] or {}).get("state") for host in listed]
        return states == ["joined"] * 4

    def schedule(self, type: str, name: str, **more: object) -> Any:
        """Announce an event, and return its id."""
        return self.post("/v1/events", {"type": type, "machines": [name], **more})["id"]

    def operate(self, name: str, *words: str) -> str:
        """Run a command, and return the id of the event that it raises for a machine."""
        self.outside.run([*FOREWARN, *words], env={"FOREWARN_URL": API}, timeout=LIMIT)
        [event] = until(lambda: self.events(name), f"an event of {name}")
        return event

    def events(self, name: str) -> set[str]:
        """Return the active events of a machine."""
        listed = self.api("GET", "/v1/events").json()
        return {event["id"] for event in listed if name in event["machines"]}

    def event(self, id: str) -> Any:
        return self.api("GET", f"/v1/events/{id}").json()

    def until_over(self, id: str) -> Any:
        """Wait until an event is over, and return it."""

        def over() -> Any:
            event = self.event(id)
            return event if event["status"] in ("Finished", "Withdrawn") else None

        try:
            return until(over, f"the end of {id}")
        except AssertionError as error:
            error.add_note(self.api("GET", f"/v1/events/{id}/explain").body.decode())
            raise

    def machine(self, name: str) -> Any:
        return self.api("GET", f"/v1/machines/{name}").json()

    # Guests.

    def start_guest(self, name: str, number: int, host: str) -> Guest:
        """Define and start a machine in a group of its own, and wait until it polls."""
        guest = Guest(name, number, self.directory / f"{name}.console")
        self._add(name, host, [guest.address])
        self.boot(guest, host)
        guest.until_answered()
        return guest

    def boot(self, guest: Guest, host: str) -> None:
        """Define and start the domain of a guest."""
        computer = _COMPUTERS[platform.machine()]
        boot = _BOOT.format(shared=self.shared, console=computer.console, address=guest.address)
        devices = _DEVICES.format(mac=guest.mac, console=guest.console)
        self.define(
            guest.name, host, identity=guest.uuid, memory=MEMORY, boot=boot, devices=devices
        )
        self.guests.append(guest)

    def start_idle(self, name: str, host: str) -> None:
        """Define and start a machine that has nothing to boot."""
        self._add(name, host, [])
        self.define(name, host)

    def _add(self, name: str, host: str, addresses: list[str]) -> None:
        """Add a machine to the inventory, in a group of its own."""
        machine = {"name": name, "addresses": addresses, "host": host}
        group = {"kind": "standalone", "machines": [machine]}
        answer = self.api("PUT", f"/v1/groups/{name}", group)
        assert answer.status in (200, 201), answer.body

    def define(
        self,
        name: str,
        host: str,
        *,
        identity: str = "",
        memory: int = IDLE_MEMORY,
        boot: str = "",
        devices: str = "",
        metadata: str = "",
    ) -> None:
        """Define and start a domain."""
        domain = _DOMAIN.format(
            name=name,
            uuid=identity or uuid.uuid4(),
            memory=memory,
            boot=boot,
            devices=devices,
            metadata=metadata,
            computer=_COMPUTERS[platform.machine()],
        )
        self.hosts[host].connection.defineXML(domain).create()

    def is_usable(self, guest: Guest) -> bool:
        """Return whether a guest polls. One that hangs is removed."""
        where = self.where(guest.name)
        if where and self.machine(guest.name)["not_back"] is None:
            guest.until_polled()
            return True
        for host in where:
            self.hosts[host].domain(guest.name).destroy()
        return False

    def where(self, name: str) -> list[str]:
        """Return the hosts on which a machine is running."""
        found = {host.name: host.domain(name) for host in self.hosts.values()}
        return [host for host, domain in found.items() if domain is not None and domain.isActive()]

    def running(self, name: str) -> list[str]:
        """Return the hosts on which a machine is running and not suspended."""
        domains = [(host, self.hosts[host].domain(name)) for host in self.where(name)]
        return [host for host, domain in domains if domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING]

    def remove(self, name: str) -> None:
        """Delete a machine, unless it is gone."""
        if not self.machine(name)["gone"]:
            self.post(f"/v1/machines/{name}/delete", None)
            until(lambda: self.machine(name)["gone"], f"the end of {name}")

    def starts(self, name: str) -> int:
        """Return how often a machine was started, as the hosts have written down. What has come by
        a migration does not count, nor what has not run because libvirt was killed while it started
        it. That has no end, or one as if it had crashed, as a first run may have, too."""
        _, *runs = self.log(name).split("starting up libvirt version")
        started = 0
        for number, run in enumerate(runs, 1):
            end = re.search(r"shutting down, reason=(\w+)", run)
            if end is None:
                ran = number == len(runs)
            else:
                ran = number == 1 or end[1] not in ("crashed", "daemon")
            started += ran and "-incoming " not in run
        return started

    def log(self, name: str) -> str:
        """Return what the hosts have written down about a machine."""
        logs = [host.directory / f"log/qemu/{name}.log" for host in self.hosts.values()]
        return "".join(log.read_text() for log in logs if log.exists())

    def commands(self, command: str) -> int:
        """Return how often libvirt has given a command to a QEMU."""
        logs = [host.directory / "log/libvirtd.log" for host in self.hosts.values()]
        sent = re.compile(rf'QEMU_MONITOR_SEND_MSG.*"execute": ?"{command}"')
        return sum(len(sent.findall(log.read_text())) for log in logs)


def shown_driver_settings() -> str:
    """Return what docs/operate/libvirt.md has hosts add to the settings of a driver process."""
    blocks = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    [block] = [block for block in blocks if "[libvirt]" in block]
    return str(block)


def _write_guest(directory: Path) -> None:
    """Write the kernel and the initramfs of guests."""
    root = Path(os.environ["HOSTS_ROOT"])
    [kernel] = (root / "boot").glob("vmlinuz-*")
    shutil.copy(kernel, directory / "vmlinuz")
    tree = directory / "initramfs"
    (tree / "bin").mkdir(parents=True)
    (tree / "dev").mkdir()
    shutil.copy(root / "bin/busybox", tree / "bin")
    for name in _MODULES:
        for module in (root / "usr/lib/modules").rglob(f"{name}.ko"):
            shutil.copy(module, tree)
    init = _INIT.replace("MODULES", " ".join(_MODULES)).replace("METADATA", METADATA_ADDRESS)
    (tree / "init").write_text(init.replace("GATEWAY", GATEWAY))
    (tree / "init").chmod(0o755)
    names = "\n".join(sorted(str(path.relative_to(tree)) for path in tree.rglob("*")))
    pack = ["cpio", "--create", "--format=newc", "--quiet"]
    packed = subprocess.run(pack, input=names.encode(), capture_output=True, cwd=tree, check=True)
    (directory / "initrd").write_bytes(gzip.compress(packed.stdout, 1))
    shutil.rmtree(tree)
