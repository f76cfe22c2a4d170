"""What the benchmark is made with and runs on: built, found, and named with its version."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time  # noqa: TID251 - a measurement
from importlib.metadata import version
from pathlib import Path

from bench.poll.peers import NGINX
from bench.poll.processes import Failed
from forewarn import __version__

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-bench"
SOURCES = Path(__file__).parent / "go"


def build(scratch: Path) -> None:
    """The peer and the load generator, with nothing but the toolchain itself."""
    missing = [name for name in (NGINX, "wrk", "taskset", _go()) if not shutil.which(name)]
    if missing:
        raise Failed(f"not installed: {', '.join(missing)}; 'make bench' does that, as root")
    for name in ("peer", "load"):
        argv = [_go(), "build", "-o", str(scratch / name), f"./{name}"]
        done = subprocess.run(
            argv, cwd=SOURCES, env=os.environ | _environment(), capture_output=True, text=True
        )
        if done.returncode:
            raise Failed(f"{name} does not build:\n{done.stderr}")


def versions() -> dict[str, str]:
    python = {name: version(name) for name in ("uvicorn", "uvloop", "httptools")}
    return {
        "forewarn": __version__,
        "Python": f"{platform.python_version()} ({_whose()})",
        **python,
        "nginx": _version([NGINX, "-v"], r"nginx/(\S+)"),
        "wrk": _version(["wrk", "-v"], r"wrk (?:debian/)?(\S+)"),
        "Go": _version([_go(), "version"], r"go version go(\S+)"),
    }


def _whose() -> str:
    return "the distribution's" if sys.base_prefix == "/usr" else "not the distribution's"


def machine() -> str:
    cpus = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", cpus, re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores,"
        f" {memory:.0f} GiB, {platform.system()} {platform.release()}"
    )


def date() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def _go() -> str:
    return str(VENV / "bin" / "go")


def _environment() -> dict[str, str]:
    """The toolchain that is pinned, and nothing left behind elsewhere."""
    return {
        "GOTOOLCHAIN": "local",
        "GOPROXY": "off",
        "GOTELEMETRY": "off",
        "GOPATH": str(VENV / "gopath"),
        "GOCACHE": str(VENV / "cache"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def _version(argv: list[str], pattern: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, env=os.environ | _environment())
    found = re.search(pattern, done.stdout + done.stderr)
    return found[1] if found else "unknown"
