"""`forewarn backup` and `forewarn restore`: copies of the state, made and put in its place.

A copy gets its name when it is whole, checked and on disk. Through a service this needs only the
base install; with a state file in hand it needs the server's packages.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from forewarn.cli.output import Json, Url, as_json, fail, fields, moment, notes, service
from forewarn.control.schema.core import BackupContents

Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


def backup(
    file: Annotated[Path, typer.Argument(help="File to write the backup to.", metavar="FILE")],
    state: Annotated[
        Path | None, typer.Option(help="Back up this state file instead of a running service.")
    ] = None,
    force: Force = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Back up the state of a running service, or a state file."""
    if state is not None and url is not None:
        raise typer.BadParameter("pass either --state or --url (or FOREWARN_URL), not both")
    try:
        if file.is_dir():
            fail(f"{file} is a directory; name a file in it")
        _free(file, force=force)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    with _unfinished(file) as made:
        found = _asked(url, made) if state is None else _copied(state, made)
        _put(made, file, force=force)
    _say(found, file, json)


def restore(
    backup: Annotated[Path, typer.Argument(help="Backup file.", metavar="BACKUP")],
    state: Annotated[Path, typer.Option(help="State file to write.")],
    force: Force = False,
    json: Json = False,
) -> None:
    """Restore a backup as the state file of a stopped service."""
    store = _server()
    try:
        done = store.stored_state(state).restore(backup, store.guard.wall_us(), force=force)
    except (store.StoreUnusable, store.OutcomeUnknown) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or state}: {error.strerror}; nothing was restored")
    found = store.shape(done.contents)
    kept = None if done.kept is None else str(done.kept)
    _say(found, state, json, kept=kept, before="what was there is kept as ")
    said = [
        "what was done after the copy was made is not known: the service observes events before it"
        " carries them out, and pauses rollouts",
    ]
    if found.tokens:
        said.append(
            "tokens that were revoked after the backup are valid again: see forewarn token list"
        )
    if done.outdated:
        said.append(
            f"its schema is {found.schema}: upgrade it before you start the service"
            " (forewarn upgrade --state FILE)"
        )
    notes(said)


def _asked(url: str | None, made: Path) -> BackupContents:
    with service(url) as client, made.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        found = client.backup(file.write)
        file.flush()
        os.fsync(file.fileno())
    _check(made, found)
    return found


def _check(made: Path, said: BackupContents) -> None:
    """What has arrived is what was sent, and whole."""
    import sqlite3  # which no other command has a use for

    try:
        with contextlib.closing(sqlite3.connect(made)) as connection:
            whole = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
            last = connection.execute("SELECT max(seq) FROM commits").fetchone()[0] or 0
    except sqlite3.DatabaseError as error:
        fail(f"the service did not send a state: {error}")
    if whole != ["ok"] or last != said.commit:
        fail(f"the backup was damaged in transit: {whole[0]}; try again")


def _copied(state: Path, made: Path) -> BackupContents:
    store = _server()
    try:
        contents = store.stored_state(state).copy(made, store.guard.wall_us())
    except store.StoreUnusable as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or state}: {error.strerror}")
    return store.shape(contents)


class _Server:
    """What only the server's packages can do, imported when it is needed."""

    def __init__(self) -> None:
        from forewarn.control.views.core import backup_contents
        from forewarn.store import OutcomeUnknown, StoreUnusable
        from forewarn.store.engines import stored_state
        from forewarn.support import guard

        self.shape, self.guard, self.StoreUnusable = backup_contents, guard, StoreUnusable
        self.OutcomeUnknown = OutcomeUnknown
        self.stored_state = stored_state


def _server() -> _Server:
    try:
        return _Server()
    except ModuleNotFoundError:
        fail("this command needs the server packages: pip install 'forewarn[server]'")


def _free(file: Path, *, force: bool) -> None:
    if file.exists() and not force:
        fail(f"{file} exists; choose another name, or pass --force to overwrite it")


@contextlib.contextmanager
def _unfinished(file: Path) -> Iterator[Path]:
    """A place in the same directory, which is gone in the end; held, so that others leave it."""
    try:
        _sweep(file)
        # SQLite cannot open a path with more ".." than the working directory is deep.
        parent = os.path.realpath(file.parent, strict=True)
        scratch = tempfile.TemporaryDirectory(prefix=f".{file.name}-", dir=parent)
    except OSError as error:
        fail(f"{file.parent}: {error.strerror}")
    with scratch as directory, contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # not every file system can, and then nothing is swept
            stack.enter_context(_held(Path(directory)))
        try:
            yield Path(directory) / "copy"
        except OSError as error:
            fail(f"{file}: {error.strerror}; no backup was made")


def _sweep(file: Path) -> None:
    """Remove what commands for the same file have left that were killed."""
    mine = re.compile(re.escape(f".{file.name}-") + "[a-z0-9_]{8}")  # as `tempfile` names them
    for left in file.parent.iterdir():
        if mine.fullmatch(left.name) and left.is_dir() and not left.is_symlink():
            with contextlib.suppress(OSError), _held(left):
                for part in left.glob("copy*"):
                    part.unlink()
                left.rmdir()


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Refused with an OSError while another process holds it; let go with the process."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _put(made: Path, file: Path, *, force: bool) -> None:
    """Give it its name; a file that has come by that name meanwhile is left alone."""
    if force:
        made.replace(file)
    else:
        try:
            os.link(made, file)
        except FileExistsError:
            _free(file, force=False)
        except OSError:  # not every file system knows second names
            _free(file, force=False)
            made.rename(file)
    handle = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _say(
    found: BackupContents, file: Path, json: bool, *, kept: str | None = None, before: str = ""
) -> None:
    size = file.stat().st_size
    if json:
        said: dict[str, Any] = {"file": str(file), "bytes": size, "contents": found}
        as_json(said if not before else {**said, "kept": kept})
        return
    pairs = [
        ("file", f"{file} ({size:,} bytes)"),
        ("schema", found.schema),
        ("last commit", str(found.commit)),
        ("until", moment(found.until)),
        ("copied", moment(found.copied_at)),
        ("groups", str(found.groups)),
        ("machines", str(found.machines)),
        ("active events", str(found.active_events)),
        ("tokens", str(found.tokens)),
    ]
    if kept:
        pairs.append(("before", before + kept))
    fields(pairs)
