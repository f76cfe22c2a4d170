"""Why a namespace cannot be made here, and what to do about it: one sentence."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

_SYSCTLS = Path("/proc/sys")
_ELSEWHERE = (
    "or do without: give the program the machine's own address (forewarn machine list),"
    " or see docs/test/containers.md"
)


def no_linux() -> str | None:
    """Whether this system has network namespaces at all."""
    if sys.platform == "linux":
        return None
    return (
        f"a network namespace needs Linux, and this is {sys.platform};"
        " run the program in a container beside the service (docs/test/containers.md)"
    )


def why(error: OSError, sysctls: Path = _SYSCTLS, root: Path = Path("/")) -> str:
    """What the kernel's refusal means here."""
    return f"no network namespace can be made here: {_cause(error, sysctls, root)}; {_ELSEWHERE}"


def _cause(error: OSError, sysctls: Path, root: Path) -> str:
    if _value(sysctls / "kernel/unprivileged_userns_clone") == "0":
        return (
            "user namespaces are for root alone (kernel.unprivileged_userns_clone is 0);"
            " run it as root, or say sudo sysctl kernel.unprivileged_userns_clone=1"
        )
    if _value(sysctls / "user/max_user_namespaces") == "0":
        return (
            "user namespaces are switched off (user.max_user_namespaces is 0);"
            " run it as root, or say sudo sysctl user.max_user_namespaces=10000"
        )
    if _value(sysctls / "user/max_net_namespaces") == "0":
        return (
            "network namespaces are switched off (user.max_net_namespaces is 0);"
            " say sudo sysctl user.max_net_namespaces=10000"
        )
    if error.errno == errno.ENOSPC:
        return "there are too many of them already (user.max_user_namespaces)"
    if _in_container(root):
        return (
            "this is a container that may not;"
            " start it with --privileged, or with --cap-add SYS_ADMIN"
        )
    if _value(sysctls / "kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor restricts user namespaces"
            " (kernel.apparmor_restrict_unprivileged_userns is 1); run it as root, or say"
            " sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if error.errno in (errno.EINVAL, errno.ENOSYS):
        return "this kernel has no user or network namespaces"
    return f"{os.strerror(error.errno or 0)}; run it as root"


def _value(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _in_container(root: Path) -> bool:
    marks = (root / ".dockerenv", root / "run/.containerenv")
    return any(mark.exists() for mark in marks) or "container" in os.environ
