"""Explains why a network namespace cannot be created here, and what to do about it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from forewarn.support.system import linux_problem

_SYSCTLS = Path("/proc/sys")
_ALTERNATIVE = (
    "or configure the program to use the machine's own address (forewarn machine list),"
    ' or see "Containers" in the documentation'
)


def platform_problem() -> str:
    """Return why this system has no network namespaces, or "" if it has."""
    return linux_problem(
        "a network namespace",
        'run the program in a container beside the service (see "Containers" in the documentation)',
    )


def explain(error: OSError, sysctls: Path = _SYSCTLS, root: Path = Path("/")) -> str:
    """Explain a refusal of the kernel."""
    return f"cannot create a network namespace here: {_cause(error, sysctls, root)}; {_ALTERNATIVE}"


def _cause(error: OSError, sysctls: Path, root: Path) -> str:
    if _value(sysctls / "kernel/unprivileged_userns_clone") == "0":
        return (
            "only root can create user namespaces (kernel.unprivileged_userns_clone is 0);"
            " run it as root, or run: sudo sysctl kernel.unprivileged_userns_clone=1"
        )
    if _value(sysctls / "user/max_user_namespaces") == "0":
        return (
            "user namespaces are disabled (user.max_user_namespaces is 0);"
            " run it as root, or run: sudo sysctl user.max_user_namespaces=10000"
        )
    if _value(sysctls / "user/max_net_namespaces") == "0":
        return (
            "network namespaces are disabled (user.max_net_namespaces is 0);"
            " run: sudo sysctl user.max_net_namespaces=10000"
        )
    if error.errno == errno.ENOSPC:
        return "there are too many namespaces already (user.max_user_namespaces)"
    if _in_container(root):
        return (
            "this container is not allowed to;"
            " start it with --privileged, or with --cap-add SYS_ADMIN"
        )
    if _value(sysctls / "kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor restricts user namespaces"
            " (kernel.apparmor_restrict_unprivileged_userns is 1); run it as root, or run:"
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
    marker_files = (root / ".dockerenv", root / "run/.containerenv")
    return any(file.exists() for file in marker_files) or "container" in os.environ
