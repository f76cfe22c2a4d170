"""No endpoint answers: what was tried, why that may be, and what to do about it, in a paragraph.

Why is read off the system: whether this is a container, whether a packet to a link-local address
has a way to go, whose machine it is. All of it is a guess that helps, and decides nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from forewarn.support import text

MAX_READ = 64 * 1024  # bytes of a file that is looked at

_ROOT = Path("/")
_WELL_KNOWN = "169.254.169.254"
_BARRED = "*"  # the device of a route that says unreachable, prohibit or blackhole

_TROUBLES = {
    "refused": "refuses connections",
    "unreachable": "cannot be reached",
    "late": "did not answer in time",
    "reset": "broke the connection off",
    "stalled": "began to answer and stopped",
    "cut": "ended in the middle of an answer",
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

_HOST_NETWORK = "run it in the host's network (--network host)"
_WAYS_OUT = {
    DOCKER: _HOST_NETWORK,
    PODMAN: _HOST_NETWORK,
    POD: f"set hostNetwork: true, or let its egress (NetworkPolicy) reach {_WELL_KNOWN}:80",
    LXC: f"give it the host's network, or a way to {_WELL_KNOWN}",
    NSPAWN: "start it without --private-network or --network-veth",
    WSL: "it is not the machine that is warned; run the client in Windows itself",
    OTHER: _HOST_NETWORK,
}

_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"  # of every virtual machine there
_OTHER_CLOUDS = {"Amazon": "Amazon EC2", "Google": "Google Cloud", "Digital": "DigitalOcean"}
_NAME_IT = "name the endpoint by FOREWARN_METADATA=http://ADDRESS:PORT"


def unreachable(
    tried: Sequence[tuple[str, str]], root: Path = _ROOT, environ: Mapping[str, str] = os.environ
) -> str:
    """All of it. `tried` has addresses, and what the trouble with each was."""
    return f"no endpoint answers: {_said(tried)}. {_why(tried, root, environ)}"


def container(root: Path = _ROOT, environ: Mapping[str, str] = os.environ) -> str | None:
    """What kind of container this is, in words; None for a machine."""
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return POD  # before the others: a pod's containers have their marks, too
    if _is_there(root / ".dockerenv"):
        return DOCKER
    if _is_there(root / "run/.containerenv"):
        return PODMAN
    if "microsoft" in _read(root / "proc/sys/kernel/osrelease").lower():
        return WSL
    for said in (environ.get("container"), _of_init(root), _read(root / "run/systemd/container")):
        if said and said.strip():
            return _KINDS.get(said.strip().lower(), OTHER)
    cgroups = _read(root / "proc/1/cgroup")
    return next((kind for mark, kind in _CGROUPS.items() if f"/{mark}" in cgroups), None)


def has_route(root: Path = _ROOT) -> bool:
    """Whether a packet to 169.254.169.254 has a way to go; true if one cannot tell."""
    lines = _read(root / "proc/net/route").splitlines()
    if not lines:
        return True
    ways: list[tuple[int, bool]] = []
    for line in lines[1:]:
        fields = line.split()
        try:
            to, mask = (int.from_bytes(bytes.fromhex(fields[at]), sys.byteorder) for at in (1, 7))
        except (ValueError, IndexError):
            return True
        if _number(_WELL_KNOWN) & mask == to:
            ways.append((mask, fields[0] != _BARRED))
    return max(ways, default=(0, False))[1]  # the narrowest decides


def _said(tried: Sequence[tuple[str, str]]) -> str:
    if not tried:
        return "there was no address to try"
    said = [f"{where} {_TROUBLES.get(trouble, trouble)}" for where, trouble in tried]
    return text.visible(text.listing(said))


def _why(tried: Sequence[tuple[str, str]], root: Path, environ: Mapping[str, str]) -> str:
    vendor = _read(root / "sys/class/dmi/id/sys_vendor").strip()
    cloud = next((name for mark, name in _OTHER_CLOUDS.items() if vendor.startswith(mark)), None)
    if cloud:
        return (
            f"This machine is on {cloud}, whose metadata service has no Scheduled Events; if there "
            f"is a forewarn service, {_NAME_IT}."
        )
    unknown = any(trouble == "answered 404" for _, trouble in tried)
    if kind := container(root, environ):
        but = ", and who answers 404 does not know the address it asks from" if unknown else ""
        return (
            f"This is {kind}{but}: {_WAYS_OUT[kind]}, or {_NAME_IT} "
            "(see docs/applications/endpoint.md)."
        )
    if unknown:
        return (
            "Who answers 404 does not know this machine: the address it asks from has to be in the "
            "fleet file, and must not be translated on the way (see docs/operate/networking.md)."
        )
    if _AZURE_TAG in _read(root / "sys/class/dmi/id/chassis_asset_tag"):
        return (
            "This is an Azure machine, so something in it is in the way: look for a firewall rule "
            f"or a route that covers {_WELL_KNOWN}, and ask with curl -H Metadata:true."
        )
    if not has_route(root):
        return (
            f"This machine has no route to {_WELL_KNOWN}: it needs one by its host, which DHCP "
            "option 121 can bring (see docs/operate/networking.md), or a lease with option 245; "
            f"or {_NAME_IT}."
        )
    if any(trouble == "refused" for _, trouble in tried):
        return "Somebody is there who does not listen: is the forewarn service running on the host?"
    return (
        "This is no Azure machine, as far as one can tell: if its host runs forewarn, look at the "
        f"route and the rules for {_WELL_KNOWN} (docs/operate/networking.md); if it is elsewhere, "
        f"{_NAME_IT} (docs/applications/endpoint.md)."
    )


def _of_init(root: Path) -> str:
    """`container=` in the environment of the first process, where one may read it."""
    settings = _read(root / "proc/1/environ").split("\0")
    said = (line.removeprefix("container=") for line in settings if line.startswith("container="))
    return next(said, "")


def _number(address: str) -> int:
    return int.from_bytes(bytes(int(part) for part in address.split(".")), "big")


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # nobody may look there
        return False


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_READ).decode("utf-8", "replace")
    except OSError:
        return ""
