"""Explains why no endpoint answers: what was tried, the likely cause, and what to do about it.

The cause is guessed from the system: whether this is a container, whether there is a route to a
link-local address, which cloud the machine belongs to. The guess only helps; nothing depends on it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from forewarn.support import text

MAX_READ = 64 * 1024  # bytes of a file

_ROOT = Path("/")
_WELL_KNOWN = "169.254.169.254"
_REJECTED = "*"  # the device of a route of type unreachable, prohibit or blackhole

_FAILURES = {
    "refused": "refuses connections",
    "unreachable": "cannot be reached",
    "late": "did not answer in time",
    "reset": "closed the connection without an answer",
    "stalled": "began to answer and stopped",
    "cut": "closed the connection in the middle of an answer",
    "not-http": "does not speak HTTP",
    "too-long": "answered far too much",
}

DOCKER, PODMAN, POD = "a Docker container", "a Podman container", "a Kubernetes pod"
LXC, NSPAWN, WSL = "an LXC container", "a systemd-nspawn container", "WSL"
OTHER = "a container"

_KINDS = {
    "docker": DOCKER,
    "podman": PODMAN,
    "lxc": LXC,
    "lxc-libvirt": LXC,
    "systemd-nspawn": NSPAWN,
    "wsl": WSL,
}  # as systemd, and what starts containers, name them
_CGROUPS = {"kubepods": POD, "libpod": PODMAN, "docker": DOCKER, "lxc": LXC}

_HOST_NETWORK = "run it with the host's network (--network host)"
_REMEDIES = {
    DOCKER: _HOST_NETWORK,
    PODMAN: _HOST_NETWORK,
    POD: f"set hostNetwork: true, or let its egress (NetworkPolicy) reach {_WELL_KNOWN}:80",
    LXC: f"give it the host's network, or a route to {_WELL_KNOWN}",
    NSPAWN: "start it without --private-network or --network-veth",
    WSL: "events are about the Windows machine around it; run the client in Windows itself",
    OTHER: _HOST_NETWORK,
}

_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"  # of every virtual machine there
_OTHER_CLOUDS = {"Amazon": "Amazon EC2", "Google": "Google Cloud", "Digital": "DigitalOcean"}
_SET_ENDPOINT = "set the endpoint with FOREWARN_METADATA=http://ADDRESS:PORT"


def explain_unreachable(
    tried: Sequence[tuple[str, str]], root: Path = _ROOT, environ: Mapping[str, str] = os.environ
) -> str:
    """Return a paragraph. `tried` has addresses, and the failure of each."""
    return f"no endpoint answers: {_list_failures(tried)}. {_cause(tried, root, environ)}"


def container(root: Path = _ROOT, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the kind of container that this is, in words; None for a machine."""
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return POD  # before the others, whose marks the containers of a pod have, too
    if _exists(root / ".dockerenv"):
        return DOCKER
    if _exists(root / "run/.containerenv"):
        return PODMAN
    if "microsoft" in _read(root / "proc/sys/kernel/osrelease").lower():
        return WSL
    for mark in (environ.get("container"), _of_init(root), _read(root / "run/systemd/container")):
        if mark and mark.strip():
            return _KINDS.get(mark.strip().lower(), OTHER)
    cgroups = _read(root / "proc/1/cgroup")
    return next((kind for mark, kind in _CGROUPS.items() if f"/{mark}" in cgroups), None)


def has_route(root: Path = _ROOT) -> bool:
    """Whether there is a route to 169.254.169.254; True if that is unknown."""
    lines = _read(root / "proc/net/route").splitlines()
    if not lines:
        return True
    routes: list[tuple[int, bool]] = []
    for line in lines[1:]:
        fields = line.split()
        try:
            network, mask = (
                int.from_bytes(bytes.fromhex(fields[at]), sys.byteorder) for at in (1, 7)
            )
        except (ValueError, IndexError):
            return True
        if _number(_WELL_KNOWN) & mask == network:
            routes.append((mask, fields[0] != _REJECTED))
    return max(routes, default=(0, False))[1]  # the most specific one decides


def _list_failures(tried: Sequence[tuple[str, str]]) -> str:
    if not tried:
        return "there was no address to try"
    failures = [f"{address} {_FAILURES.get(failure, failure)}" for address, failure in tried]
    return text.visible(text.listing(failures))


def _cause(tried: Sequence[tuple[str, str]], root: Path, environ: Mapping[str, str]) -> str:
    vendor = _read(root / "sys/class/dmi/id/sys_vendor").strip()
    cloud = next((name for mark, name in _OTHER_CLOUDS.items() if vendor.startswith(mark)), None)
    if cloud:
        return (
            f"This machine is on {cloud}, whose metadata service has no Scheduled Events; if there "
            f"is a forewarn service, {_SET_ENDPOINT}."
        )
    unknown = any(failure == "answered 404" for _, failure in tried)
    if kind := container(root, environ):
        also = ", and a service that answers 404 does not know its address" if unknown else ""
        return (
            f"This is {kind}{also}: {_REMEDIES[kind]}, or {_SET_ENDPOINT}"
            ' (see "Finding the endpoint" in the documentation).'
        )
    if unknown:
        return (
            "A service that answers 404 does not know this machine: the machine's address has to be"
            " in the fleet file, and must not be translated on the way"
            ' (see "Networking for guests" in the documentation).'
        )
    if _AZURE_TAG in _read(root / "sys/class/dmi/id/chassis_asset_tag"):
        return (
            "This is an Azure machine, so the cause is within it: look for a firewall rule or a "
            f"route that covers {_WELL_KNOWN}, and test with curl -H Metadata:true."
        )
    if not has_route(root):
        return (
            f"This machine has no route to {_WELL_KNOWN}: it needs one through its host, which "
            'DHCP option 121 can provide (see "Networking for guests" in the documentation); or '
            f"{_SET_ENDPOINT}."
        )
    if any(failure == "refused" for _, failure in tried):
        return "The host refuses connections: is the forewarn service running on it?"
    return (
        "This does not seem to be an Azure machine: if its host runs forewarn, check the route and "
        f'the firewall rules for {_WELL_KNOWN} (see "Networking for guests" in the documentation); '
        f'if forewarn runs elsewhere, {_SET_ENDPOINT} (see "Finding the endpoint" in the '
        "documentation)."
    )


def _of_init(root: Path) -> str:
    """Return `container=` in the environment of the first process, where it is readable."""
    variables = _read(root / "proc/1/environ").split("\0")
    prefix = "container="
    return next((line.removeprefix(prefix) for line in variables if line.startswith(prefix)), "")


def _number(address: str) -> int:
    return int.from_bytes(bytes(int(part) for part in address.split(".")), "big")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # not accessible
        return False


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_READ).decode("utf-8", "replace")
    except OSError:
        return ""
