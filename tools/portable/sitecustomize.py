"""Takes away what macOS or Windows do not have, before anything else is imported.

Python imports this module at the start of every process whose PYTHONPATH has this folder: pytest,
its workers, and the programs that tests start. Modules and names are taken from forewarn's own
modules and from its tests alone, because the standard library and other packages have versions of
their own for each system. The event loop loses what Windows' loop refuses, for everybody.

`tools/portable-tests` sets the path, and takes away addresses and /proc, which cannot be done here.
"""

from __future__ import annotations

import asyncio
import asyncio.unix_events
import builtins
import os
import select
import selectors
import signal
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
OWN = tuple(f"{_ROOT / folder}{os.sep}" for folder in ("src", "tests"))

MODULES = (
    *("crypt", "curses", "fcntl", "grp", "nis", "pty", "pwd", "readline", "resource", "spwd"),
    *("syslog", "termios", "tty", "uvloop"),
)

NAMES = {
    "os": (
        "EX_ F_ P_ RTLD_ SCHED_ W pidfd_ posix_ sched_ spawn fork getres setres",
        "O_ASYNC O_CLOEXEC O_DIRECTORY O_DSYNC O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH"
        " O_SYNC O_TMPFILE chown chroot confstr ctermid eventfd fchdir fchmod fchown fdatasync"
        " fpathconf fstatvfs getegid geteuid getgid getgrouplist getgroups getloadavg getpgid"
        " getpgrp getpriority getsid getuid getxattr initgroups killpg lchown lockf login_tty major"
        " makedev memfd_create minor mkfifo mknod nice openpty pathconf pipe2 pread preadv"
        " pthread_getcpuclockid pwrite pwritev readv register_at_fork sendfile set_blocking"
        " setegid seteuid setgid setgroups setns setpgid setpriority setregid setreuid setsid"
        " setuid setxattr splice statvfs sync sysconf tcgetpgrp tcsetpgrp ttyname uname unshare"
        " wait wait3 wait4 waitid waitpid writev",
    ),
    "select": ("EPOLL POLL", "PIPE_BUF epoll kevent kqueue poll"),
    "signal": (
        "ITIMER_ SIG_B SIG_U SIG_S SIGRT pthread_ sig",
        "SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGHUP SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF"
        " SIGPWR SIGQUIT SIGSTKFLT SIGSTOP SIGSYS SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1"
        " SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ alarm getitimer pause pidfd_send_signal"
        " setitimer struct_siginfo",
    ),
    "socket": (
        "AF_A AF_C AF_N AF_P AF_T AF_UNIX AF_V CAN_ CMSG_ NETLINK_ PACKET_ SCM_",
        "MSG_CMSG_CLOEXEC MSG_DONTWAIT MSG_NOSIGNAL SOCK_CLOEXEC SOCK_NONBLOCK SO_BINDTODEVICE"
        " SO_INCOMING_CPU SO_MARK SO_PEERCRED SO_REUSEPORT TCP_CORK TCP_DEFER_ACCEPT TCP_INFO"
        " TCP_QUICKACK TCP_USER_TIMEOUT recv_fds send_fds",
    ),
    "asyncio": ("", "open_unix_connection start_unix_server"),
}
KEPT = {"signal": ("signal", "sigint"), "os": ("F_OK", "walk", "waitstatus_to_exitcode", "write")}


class Elsewhere(ModuleType):
    """A module of the standard library without the names that only some systems have."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__, module.__doc__)
        prefixes, names = NAMES[module.__name__]
        self.__dict__["_module"] = module
        self.__dict__["_prefixes"] = tuple(prefixes.split())
        self.__dict__["_hidden"] = frozenset(names.split())

    def __getattr__(self, name: str) -> Any:
        hidden = name in self._hidden or name.startswith(self._prefixes)
        if hidden and name not in KEPT.get(self.__name__, ()):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}' elsewhere")
        return getattr(self._module, name)


_elsewhere = {
    module.__name__: Elsewhere(module) for module in (os, select, signal, socket, asyncio)
}
_import = builtins.__import__


def _import_elsewhere(
    name: str,
    globals: Any = None,
    locals: Any = None,
    fromlist: Any = (),
    level: int = 0,
) -> ModuleType:
    importer = (globals or {}).get("__file__") or ""
    if level == 0 and importer.startswith(OWN):
        top = name.partition(".")[0]
        if top == "msvcrt":
            return _import("msvcrt_locks")
        if top in MODULES:
            raise ModuleNotFoundError(f"No module named '{name}' elsewhere", name=name)
        if top in _elsewhere and (name == top or not fromlist):
            _import(name, globals, locals, fromlist, level)
            return _elsewhere[top]
    return _import(name, globals, locals, fromlist, level)


def _refuse(loop: Any, name: str) -> None:
    """Refuse a method of the event loop to everybody but asyncio itself."""
    method = getattr(loop, name)

    def refused(*args: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.partition(".")[0] != "asyncio":
            raise NotImplementedError(f"{name} elsewhere")
        return method(*args)

    setattr(loop, name, refused)


def take_away() -> None:
    builtins.__import__ = _import_elsewhere
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc]
    loop: Any = asyncio.unix_events._UnixSelectorEventLoop  # type: ignore[attr-defined]
    for what in ("reader", "writer", "signal_handler"):
        _refuse(loop, f"add_{what}")
        _refuse(loop, f"remove_{what}")


take_away()
