"""What the tests run with, whatever started them: a known environment, umask, time zone, and the
default action for signals in all that they start. A test that needs something else sets it.

It is so as soon as this module is imported: other modules may look at the environment once."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time  # noqa: TID251 - only its zone
from collections.abc import Mapping
from pathlib import Path

from helpers.paths import ROOT

KEPT = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LD_LIBRARY_PATH"),
    *("CI", "FOREWARN_DIST", "XDG_CACHE_HOME"),  # in which uv keeps its cache
}
KEPT_PREFIXES = ("TEST_", "PYTEST_", "HYPOTHESIS_", "COVERAGE_", "PIP_", "UV_", "PYENV_")
SET = {"LANG": "C.UTF-8", "TERM": "xterm", "TZ": "UTC"}
FOR_ROOT = "/usr/local/sbin:/usr/sbin:/sbin"  # not in everybody's PATH: haproxy, nginx, ip, nft
# Tests write scripts and bind sockets in it. An address has 107 bytes; pytest needs some 70.
USABLE_TMPDIR = re.compile(r"[\w/.-]{1,24}", re.ASCII)
# Only pip and tools/uv-pip need these; pip has settings of its own for them.
OF_PIP = {
    "PIP_PROXY": ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
    "PIP_CERT": ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"),
}
PORTABLE = str(ROOT / "tools/portable")  # takes away what other systems do not have
# Python ignores these for itself; the last two cannot be changed.
LEFT_ALONE = {"SIGPIPE", "SIGXFSZ", "SIGKILL", "SIGSTOP"}


def is_usable(directory: str) -> bool:
    """Return whether tests can have their temporary files there. Those of root start servers as
    other users, who must be able to reach their files."""
    if not (USABLE_TMPDIR.fullmatch(directory) and Path(directory).is_dir()):
        return False
    path, is_root = Path(directory), hasattr(os, "geteuid") and os.geteuid() == 0
    return not is_root or all(place.stat().st_mode & 1 for place in (path, *path.parents))


def known(started_with: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of tests that were started with this one."""
    kept = {
        name: value
        for name, value in started_with.items()
        if name in KEPT or name.startswith(KEPT_PREFIXES)
    }
    if is_usable(directory := started_with.get("TMPDIR", "")):
        kept["TMPDIR"] = directory
    for setting, names in OF_PIP.items():
        values = [started_with[name] for name in names if started_with.get(name)]
        if values:
            kept.setdefault(setting, values[0])
    paths = [
        path
        for path in started_with.get("PYTHONPATH", "").split(os.pathsep)
        if path and os.path.realpath(path) == os.path.realpath(PORTABLE)
    ]
    path = os.pathsep.join(filter(None, [started_with.get("PATH"), FOR_ROOT]))
    return kept | SET | {"PATH": path} | ({"PYTHONPATH": paths[0]} if paths else {})


def install() -> None:
    if os.name == "nt":  # where most variables are the system's, and nothing else is inherited
        return
    environment = known(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # as TMPDIR says now
    time.tzset()
    os.umask(0o022)
    left_alone = {getattr(signal, name) for name in LEFT_ALONE if hasattr(signal, name)}
    for number in signal.valid_signals() - left_alone:
        if signal.getsignal(number) is signal.SIG_IGN:
            # Without effect, as before, but not inherited.
            signal.signal(number, lambda *_: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


install()
