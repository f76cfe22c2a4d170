#!/usr/bin/env python3
"""A hook for the agent beside an nginx: takes servers out of an upstream while their machines are
disturbed, and puts them back.

prepare: the event's machines are marked `down` in a file that the upstream includes; nginx checks
it, takes it up, and finishes what it has begun. undo: they are put back, unless another event (or
an operator) still keeps them out. `upstream.py write` only writes the file.

The variables it reads, and its files, are in README.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import subprocess
import sys
import time  # noqa: TID251 - a program of a user's own, not a part of forewarn
from collections.abc import Iterator
from pathlib import Path

SECONDS = 60.0  # to take if the agent sets no limit
MARGIN = 1.0  # seconds of the time left that are not used
POLL = 0.05  # seconds between two looks
NGINX_TIMEOUT = 20.0  # seconds for a test or a reload, which may look names up


class Trouble(Exception):
    pass


def main() -> None:
    stage = "write" if sys.argv[1:] == ["write"] else needed("FOREWARN_STAGE")
    with one_at_a_time():
        if stage == "prepare":
            prepare()
        elif stage == "undo":
            undo()
        elif stage == "write":
            replace(INCLUDE, rendered(peers(), held()))
        else:
            say(f"nothing to do when an event has {stage}")


def prepare() -> None:
    table = peers()
    out = [name for name in os.environ["FOREWARN_EVENT_RESOURCES"].split() if name in table]
    if not out:
        return say(f"none of its machines is in {PEERS}")
    if not table.keys() - held() - set(out):
        raise Trouble(f"without {' '.join(out)} nobody would be left in {PEERS}: nothing changed")
    was_held = hold().exists()
    OUT.mkdir(exist_ok=True)
    replace(hold(), "\n".join(out) + "\n")
    try:
        before = take_up(table)
    except BaseException:
        if not was_held:
            hold().unlink()
        raise
    say(f"{' '.join(out)} is out")
    wait_for_those_who_go(before)
    return say("no request is left that could be there")


def undo() -> None:
    if not hold().exists():
        return say("nothing was taken out")
    back = set(hold().read_text().split()) - held(but=hold().name)
    take_up(peers(), but=hold().name)
    hold().unlink()
    return say(f"{' '.join(sorted(back))} is back" if back else "kept out by another")


# --- who is in and who is out


def peers() -> dict[str, list[str]]:
    """Of every machine, what nginx has to be told of it: `web_0  10.0.0.4:8080 weight=2`. One that
    has several servers has a line for each."""
    table: dict[str, list[str]] = {}
    for number, line in enumerate(PEERS.read_text().splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) < 2 or re.search(r"[;{}\"'\\$]", line.partition("#")[0]):
            raise Trouble(f"{PEERS}:{number}: it would be like: web_0  10.0.0.4:8080 weight=2")
        table.setdefault(words[0], []).append(" ".join(words[1:]))
    return table


def held(but: str = "") -> set[str]:
    """The machines that some event, or an operator, keeps out: a file each, with their names."""
    files = [file for file in OUT.glob("*") if file.name != but and file.suffix != ".new"]
    return {name for file in files for name in file.read_text().split()}


def hold() -> Path:
    event = os.environ["FOREWARN_EVENT_ID"]
    if not re.fullmatch(r"[0-9A-Za-z-]+", event):
        raise Trouble(f"{event!r} is no event's id")
    return OUT / event


def rendered(table: dict[str, list[str]], out: set[str]) -> str:
    lines = ["# written by forewarn's hook upstream.py; change the table beside it instead"]
    for name, servers in table.items():
        down = " down" if name in out else ""
        lines += [f"server {server}{down};  # {name}" for server in servers]
    return "\n".join(lines) + "\n"


# --- nginx


def take_up(table: dict[str, list[str]], but: str = "") -> set[int]:
    """Write it and have nginx take it up, or leave it as it was; the workers that go for it."""
    before = INCLUDE.read_text() if INCLUDE.exists() else ""
    replace(INCLUDE, rendered(table, held(but)))
    try:
        run(TEST)
        if not (workers := workers_now()):
            raise Trouble(f"nginx, whose process is in {PID}, has no workers to be seen from here")
        run(RELOAD)
    except (Trouble, OSError, subprocess.TimeoutExpired):
        replace(INCLUDE, before)
        raise
    return set(workers)


def wait_for_those_who_go(old: set[int]) -> None:
    """A reload has only begun when nginx says that it was told: new workers come, the old ones
    accept no more, finish what they have, and end."""
    while there := old & workers_now().keys():
        if left() < POLL:
            if any(
                title.endswith("worker process")
                for pid, title in workers_now().items()
                if pid in there
            ):
                raise Trouble("the time is up, and nginx has not taken it up; see its error log")
            raise Trouble(f"the time is up: {len(there)} old worker(s) still finish requests")
        time.sleep(POLL)


def workers_now() -> dict[int, str]:
    master, found = PID.read_text().strip(), {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if status.read_text().rpartition(")")[2].split()[1] == master:
                title = status.with_name("cmdline").read_text().rstrip("\0 ")
                if "cache" not in title:  # a worker that has just begun has its master's title
                    found[int(status.parent.name)] = title
    return found


def run(words: list[str]) -> None:
    ended = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=NGINX_TIMEOUT,
    )
    if ended.returncode != 0:
        raise Trouble(f"{shlex.join(words)}: {ended.stdout.strip()}")


# --- small things


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    with INCLUDE.with_suffix(".lock").open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if left() < POLL:
                    raise Trouble(f"the time is up, and another still has {lock.name}") from None
                time.sleep(POLL)
        yield


def replace(file: Path, text: str) -> None:
    new = file.with_name(f"{file.name}.new")
    with new.open("w") as writing:
        writing.write(text)
        writing.flush()
        os.fsync(writing.fileno())
    new.rename(file)
    settle(file.parent)


def settle(directory: Path) -> None:
    """What was renamed in it is so after a power cut, too."""
    handle = os.open(directory, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def needed(name: str) -> str:
    if not os.environ.get(name):
        raise Trouble(f"{name} is not set: a hook is run by the agent (docs/applications/hooks.md)")
    return os.environ[name]


def left() -> float:
    return DEADLINE - time.monotonic()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    PEERS = Path(os.environ.get("UPSTREAM_PEERS") or "/etc/nginx/forewarn/web.peers")
    INCLUDE = PEERS.with_suffix(".servers")
    OUT = PEERS.with_suffix(".out")
    TEST = shlex.split(os.environ.get("NGINX_TEST") or "nginx -t")
    RELOAD = shlex.split(os.environ.get("NGINX_RELOAD") or "nginx -s reload")
    PID = Path(os.environ.get("NGINX_PID") or "/run/nginx.pid")
    try:
        limit = float(os.environ.get("FOREWARN_SECONDS_LEFT") or SECONDS)
        DEADLINE = time.monotonic() + limit - MARGIN
        main()
    except (Trouble, OSError, ValueError, subprocess.TimeoutExpired) as trouble:
        sys.exit(f"upstream: {trouble}")
