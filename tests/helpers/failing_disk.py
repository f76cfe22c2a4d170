"""A disk that fails on request (failing_disk.c), and lives of a store on it.

Run as a program under the preloaded library, it forks a life for each way to fail, ends it as
kill -9 does, and looks at what the next lives find. It prints what does not agree with what callers
were told, as JSON lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import functools
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from helpers.waiting import LIMIT

SOURCE = Path(__file__).with_suffix(".c")
SYNC, WRITE = 1, 2
WRITES_STEP = 4  # of the writes of a life, every fourth one fails; of the syncs, each one
OPENED = "opened"


@functools.cache
def library() -> Path:
    """Compiled once for each process that runs tests."""
    made = Path(tempfile.mkdtemp()) / "failing_disk.so"
    argv = ["cc", "-shared", "-fPIC", "-O1", "-o", str(made), str(SOURCE), "-ldl"]
    subprocess.run(argv, check=True, timeout=LIMIT)
    return made


def environment(directory: Path | None = None, plan: str = "") -> dict[str, str]:
    """For a process whose disk is that directory, unless it says itself later which it is."""
    own = {"LD_PRELOAD": str(library())}
    if directory is not None:
        images(directory).mkdir(exist_ok=True)
        own |= {"FAILING_DISK": str(directory), "FAILING_DISK_PLAN": plan}
    return {**os.environ, **own}


def images(directory: Path) -> Path:
    return directory.with_name(directory.name + ".images")


def cut_power(directory: Path) -> None:
    """Every file becomes what a disk would have of it."""
    for file in directory.iterdir():
        if file.is_file() and not file.name.endswith(".lock"):
            image = images(directory) / str(file.stat().st_ino)
            # One that is empty has nothing to lose, and its image may be of an earlier file.
            there = image.exists() and file.stat().st_size > 0
            content = image.read_bytes() if there else b""
            with file.open("r+b") as opened:  # the same inode
                opened.truncate()
                opened.write(content)
    for file in directory.glob("*-shm"):
        file.unlink()


class Failure(NamedTuple):
    kind: int
    at: int
    lasting: bool
    error: int

    def __str__(self) -> str:
        what = "sync" if self.kind == SYNC else "write"
        return f"{what} {self.at} {errno.errorcode[self.error]}{' and on' * self.lasting}"


class Outcomes(NamedTuple):
    """What the callers of one life were told."""

    done: set[str]
    failed: set[str]
    unknown: set[str]


def forked(life: Callable[[Callable[[str], None]], None]) -> list[str]:
    """What a process says until it dies."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            life(lambda line: void(os.write(writing, f"{line}\n".encode())))
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException as error:
            os.write(writing, f"raised {error!r}\n".encode())
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as file:
        lines = file.read().splitlines()
    os.waitpid(child, 0)
    return lines


def void(_: object) -> None:
    pass


def say(report: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


class Sweep:
    """Lives on one directory, each begun with the same state."""

    def __init__(self, home: Path, life: Callable[..., Any], look: Callable[[Path], Any]) -> None:
        self.directory = home / "disk"
        self._template = home / "template"
        self._kept = home / "kept"
        self.life, self._look = life, look
        self._shim = ctypes.CDLL(None)
        self.begin_again()
        if self._template.exists():
            shutil.rmtree(self._template)
        self._template.mkdir()

    @property
    def state(self) -> Path:
        return self.directory / "state.db"

    def begin_again(self) -> None:
        for directory in (self.directory, images(self.directory)):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        for file in self._template.iterdir() if self._template.exists() else ():
            made = self.directory / file.name
            shutil.copyfile(file, made)
            shutil.copyfile(file, images(self.directory) / str(made.stat().st_ino))

    def keep_as_template(self) -> None:
        for file in self.directory.iterdir():
            if file.is_file():
                shutil.copyfile(file, self._template / file.name)

    def live(self, failure: Failure | None, path: Path) -> tuple[Outcomes, tuple[int, int]]:
        counted: list[int] = [0, 0]

        def life(say: Callable[[str], None]) -> None:
            self._watch(failure)
            self.life(path, say)
            say(f"counted {self._counted(SYNC)} {self._counted(WRITE)}")

        reported = Outcomes(set(), set(), set())
        begun: set[str] = set()
        for line in forked(life):
            what, _, rest = line.partition(" ")
            if what == "counted":
                counted = [int(word) for word in rest.split()]
            elif what == "begun":
                begun.add(rest)
            elif what in Outcomes._fields:
                getattr(reported, what).add(rest)
            elif what != OPENED:
                raise AssertionError(f"{failure}: {line}")
        reported.unknown.update(begun - reported.done - reported.failed)  # nobody was answered
        return reported, (counted[0], counted[1])

    def _counted(self, kind: int) -> int:
        return int(self._shim.failing_disk_counted(kind))

    def found(self) -> set[str]:
        def life(say: Callable[[str], None]) -> None:
            self._watch(None)
            for name in self._look(self.state):
                say(f"there {name}")
            say("all")

        lines = forked(life)
        assert lines[-1:] == ["all"], lines
        return {line.removeprefix("there ") for line in lines[:-1]}

    def _watch(self, failure: Failure | None) -> None:
        encoded = str(self.directory).encode(), str(images(self.directory)).encode()
        self._shim.failing_disk_watch(*encoded)
        self._shim.failing_disk_arm(*(failure or (0, 0, False, 0)))

    def report(self, failure: Failure) -> None:
        self.begin_again()
        reported, _ = self.live(failure, self.state)
        wrong = list(self._wrong(reported, failure.kind == SYNC))
        say(
            {"failure": str(failure), **{k: sorted(v) for k, v in reported._asdict().items()}}
            | {"wrong": wrong}
        )

    def _wrong(self, reported: Outcomes, cut: bool) -> Iterator[str]:
        """What does not agree with what callers were told; also if power is cut, be it at once or
        when another service has shown what it found."""
        keep(self.directory, self._kept)
        found = self.found()
        yield from disagreements(reported, found, "after kill -9")
        if not cut:
            return
        cut_power(self.directory)
        again = self.found()
        if again != found:
            yield f"served {sorted(found)}, and after power was cut there is {sorted(again)}"
        bring_back(self._kept, self.directory)
        cut_power(self.directory)
        yield from disagreements(reported, self.found(), "after power was cut")


def keep(directory: Path, kept: Path) -> None:
    """Names do not lead to the same inodes in a copy, so images are kept by name."""
    shutil.rmtree(kept, ignore_errors=True)
    (kept / "images").mkdir(parents=True)
    (kept / "files").mkdir()
    for file in directory.iterdir():
        if file.is_file():
            image = images(directory) / str(file.stat().st_ino)
            shutil.copyfile(file, kept / "files" / file.name)
            if image.exists():
                shutil.copyfile(image, kept / "images" / file.name)


def bring_back(kept: Path, directory: Path) -> None:
    for place in (directory, images(directory)):
        shutil.rmtree(place)
        place.mkdir()
    for file in (kept / "files").iterdir():
        made = directory / file.name
        shutil.copyfile(file, made)
        image = kept / "images" / file.name
        if image.exists():
            shutil.copyfile(image, images(directory) / str(made.stat().st_ino))


def disagreements(reported: Outcomes, found: set[str], when: str) -> Iterator[str]:
    if lost := reported.done - found:
        yield f"{when}, told as done and not there: {sorted(lost)}"
    if wrong := reported.failed & found:
        yield f"{when}, told as not done and there: {sorted(wrong)}"


# A life of the store.


def looked(path: Path) -> set[str]:
    from forewarn.store.sqlite.engine import SqliteStore

    async def look() -> set[str]:
        store = SqliteStore(path)
        await store.open()
        return set(store.groups)  # and it is killed

    return asyncio.run(look())


def lived(path: Path, say: Callable[[str], None], names: Sequence[str] = "abcde") -> None:
    """All that is ever written, with a log that is begun anew every few commits."""
    from forewarn.store import OutcomeUnknown, StoreFailed, StoreUnusable
    from forewarn.store.port import PollSightings
    from forewarn.store.sqlite.engine import SqliteStore
    from helpers.state_files import NOW, define_group

    async def attempt(name: str, doing: Any) -> None:
        say(f"begun {name}")
        try:
            await doing
        except StoreFailed:
            say(f"failed {name}")
        except OutcomeUnknown:
            say(f"unknown {name}")
            raise
        else:
            say(f"done {name}")

    async def quietly(doing: Any) -> None:
        """What no caller waits for."""
        with contextlib.suppress(StoreFailed):
            await doing

    def often(store: SqliteStore) -> None:
        assert store._engine is not None
        with store._engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_autocheckpoint=20")

    async def copied(store: SqliteStore) -> None:
        made = await store.copy(NOW.at)
        assert made is not None
        made.file.close()

    async def live() -> None:
        store = SqliteStore(path)
        try:
            await store.open()
        except StoreUnusable:
            return
        say(OPENED)
        await store._in_thread(often, store)
        first, *together, fourth, last = list(names)
        await attempt(first, store.transact(define_group(first)))
        await asyncio.gather(*(attempt(n, store.transact(define_group(n))) for n in together))
        await quietly(store.save(PollSightings(seen={"a": 1}, served_until=NOW.at)))
        await attempt(fourth, store.transact(define_group(fourth)))
        await quietly(store.prune(NOW.at + 1, lambda _: False))
        await quietly(copied(store))
        await attempt(last, store.transact(define_group(last)))

    try:
        asyncio.run(live())
    except OutcomeUnknown:
        os.kill(os.getpid(), signal.SIGKILL)  # as the service does


def restored(path: Path, say: Callable[[str], None]) -> None:
    """A backup with one more group becomes the state."""
    from forewarn.store import OutcomeUnknown, StoreUnusable
    from forewarn.store.sqlite.restore import restore

    say("begun restored")
    try:
        restore(path.parent.with_name("backup.db"), path, 1, force=True)
    except OutcomeUnknown:
        say("unknown restored")
    except (StoreUnusable, OSError):
        say("failed restored")
    else:
        say("done restored")


def main(home: Path) -> None:
    import structlog  # noqa: F401

    from forewarn.service.telemetry import log
    from forewarn.store.sqlite import connect
    from helpers.state_files import groups_in, write_groups

    log.configure("console", "error")
    sweep = Sweep(home, lived, looked)
    # Statements are compiled here once, for the path that all lives share, and not by each of them.
    connect.create_engine = functools.cache(connect.create_engine)
    groups_in(write_groups(sweep.state, "a"))
    sweep.begin_again()
    gc.collect()
    gc.freeze()
    forked(lambda say: lived(sweep.state, say, "vwxyz"))
    sweep.keep_as_template()  # with a log that somebody has left
    sweep.begin_again()
    reported, (syncs, writes) = sweep.live(None, sweep.state)
    say({"done": sorted(reported.done), "syncs": syncs, "writes": writes})
    for at in range(1, syncs + 1):
        for lasting in (False, True):
            sweep.report(Failure(SYNC, at, lasting, errno.EIO))
    for at in range(1, writes + 1, WRITES_STEP):
        sweep.report(Failure(WRITE, at, False, errno.ENOSPC))
    forked(lambda say: lived(home / "backup.db", say, ["restored", "v", "w", "x", "y"]))
    sweep.life = restored
    sweep.begin_again()
    _, (syncs, _) = sweep.live(None, sweep.state)
    say({"restoring": syncs})
    for at in range(1, syncs + 1):
        sweep.report(Failure(SYNC, at, False, errno.EIO))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
