"""`forewarn backup` and `forewarn restore`.

A backup gets its name when it is complete, checked and synced to disk. A backup of a running
service needs only the base install; --state and `restore` need the server's packages.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.commands.service_options import need_extra
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.output import (
    Json,
    Url,
    fail,
    print_fields,
    print_json,
    print_notes,
    service,
    time_text,
)
from forewarn.cli.values import StateOption
from forewarn.control.schema.core import BackupContents
from forewarn.support import system
from forewarn.support.files.lock import try_lock

Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


def backup(
    file: Annotated[Path, typer.Argument(help="File to write the backup to.", metavar="FILE")],
    state: Annotated[
        StateOption | None,
        typer.Option(help="Back up this state file instead of a running service."),
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
            fail(f"{file} is a directory; pass a file in it")
        _check_not_existing(file, force=force)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    with _scratch_file(file) as copy:
        contents = _download(url, copy) if state is None else _copy_file(state, copy)
        _rename(copy, file, force=force)
    _print_contents(contents, file, json)


@accepts_yes
def restore(
    backup: Annotated[Path, typer.Argument(help="Backup file.", metavar="BACKUP")],
    state: Annotated[StateOption, typer.Option(help="State file to write.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace an existing state; it is kept under another name."),
    ] = False,
    json: Json = False,
) -> None:
    """Restore a backup as the state file of a stopped service."""
    store = _server()
    try:
        restored = store.stored_state(state).restore(backup, store.guard.wall_us(), force=force)
    except (store.StoreUnusable, store.OutcomeUnknown) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or state}: {error.strerror}; nothing was restored")
    assert isinstance(state, Path)  # no other engine restores
    contents = store.shape(restored.contents)
    previous = None if restored.kept is None else str(restored.kept)
    _print_contents(contents, state, json, {"kept": previous})
    notes = [
        "it is not known what was done after the backup was made: the service observes events"
        " before it carries them out, and pauses rollouts",
    ]
    if contents.tokens:
        notes.append(
            "tokens that were revoked after the backup are valid again: see forewarn token list"
        )
    else:
        notes.append(
            "the backup has no tokens: until one is created, every local program can use the"
            " control API (forewarn token create NAME --role admin --state FILE)"
        )
    if restored.outdated:
        notes.append(
            f"its schema is {contents.schema}: upgrade it before you start the service"
            " (forewarn upgrade --state FILE)"
        )
    print_notes(notes)


def _download(url: str | None, copy: Path) -> BackupContents:
    with service(url) as client, copy.open("xb") as file:
        copy.chmod(0o600)
        contents = client.backup(file.write)
        file.flush()
        os.fsync(file.fileno())
    _check_download(copy, contents)
    return contents


def _check_download(copy: Path, contents: BackupContents) -> None:
    """Check that the backup is intact, and the one that the service has described."""
    import sqlite3  # only this command needs it

    try:
        with contextlib.closing(sqlite3.connect(copy)) as connection:
            check = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
            last = connection.execute("SELECT max(seq) FROM commits").fetchone()[0] or 0
    except sqlite3.DatabaseError as error:
        fail(f"the service did not send a state: {error}")
    if check != ["ok"] or last != contents.commit:
        fail(f"the backup was damaged in transit: {check[0]}; try again")


def _copy_file(state: StateOption, copy: Path) -> BackupContents:
    store = _server()
    try:
        contents = store.stored_state(state).copy(copy, store.guard.wall_us())
    except store.StoreUnusable as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or state}: {error.strerror}")
    return store.shape(contents)


class _Server:
    """Functions that need the server's packages, imported when they are needed."""

    def __init__(self) -> None:
        from forewarn.control.views.core import backup_contents
        from forewarn.store import OutcomeUnknown, StoreUnusable
        from forewarn.store.engines import stored_state
        from forewarn.support import guard

        self.shape, self.guard, self.StoreUnusable = backup_contents, guard, StoreUnusable
        self.OutcomeUnknown = OutcomeUnknown
        self.stored_state = stored_state


def _server() -> _Server:
    need_extra("server")
    return _Server()


def _check_not_existing(file: Path, *, force: bool) -> None:
    if file.exists() and not force:
        fail(f"{file} exists; choose another name, or pass --force to overwrite it")


@contextlib.contextmanager
def _scratch_file(file: Path) -> Iterator[Path]:
    """Yield a path in a temporary directory beside `file`. The directory is locked, so that other
    commands do not remove it."""
    try:
        _remove_leftovers(file)
        # SQLite cannot open a path with more ".." than the working directory is deep.
        parent = os.path.realpath(file.parent, strict=True)
        scratch = tempfile.TemporaryDirectory(prefix=f".{file.name}-", dir=parent)
    except OSError as error:
        fail(f"{file.parent}: {error.strerror}")
    with scratch as directory, contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # without locks, no command removes leftovers
            stack.enter_context(_lock(Path(directory)))
        try:
            yield Path(directory) / "copy"
        except OSError as error:
            fail(f"{file}: {error.strerror}; no backup was made")


def _remove_leftovers(file: Path) -> None:
    """Remove the temporary directories of commands for the same file that were killed."""
    name = re.compile(re.escape(f".{file.name}-") + "[a-z0-9_]{8}")  # as `tempfile` names them
    for directory in file.parent.iterdir():
        if name.fullmatch(directory.name) and directory.is_dir() and not directory.is_symlink():
            with contextlib.suppress(OSError), _lock(directory):
                for part in directory.glob("copy*"):
                    part.unlink()
                directory.rmdir()


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Lock a directory. Raises OSError if another process has locked it, or if directories cannot
    be locked (Windows)."""
    if not hasattr(os, "O_DIRECTORY"):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(directory))
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not try_lock(handle):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(directory))
        yield
    finally:
        os.close(handle)


def _rename(copy: Path, file: Path, *, force: bool) -> None:
    """Give the backup its name. Without `force`, a file that was created meanwhile is kept."""
    if force:
        copy.replace(file)
    else:
        try:
            os.link(copy, file)
        except FileExistsError:
            _check_not_existing(file, force=False)
        except OSError:  # the file system has no hard links
            _check_not_existing(file, force=False)
            copy.rename(file)
    system.sync(file.parent)


def _print_contents(
    contents: BackupContents, file: Path, json: bool, more: dict[str, str | None] | None = None
) -> None:
    """Print what a backup contains. `more` may say where the previous state file is kept."""
    more = more or {}
    size = file.stat().st_size
    if json:
        print_json({"file": str(file), "bytes": size, "contents": contents, **more})
        return
    pairs = [
        ("file", f"{file} ({size:,} bytes)"),
        ("schema", contents.schema),
        ("last commit", str(contents.commit)),
        ("until", time_text(contents.until)),
        ("copied", time_text(contents.copied_at)),
        ("groups", str(contents.groups)),
        ("machines", str(contents.machines)),
        ("active events", str(contents.active_events)),
        ("tokens", str(contents.tokens)),
    ]
    if kept := more.get("kept"):
        pairs.append(("before", f"the previous file is kept as {kept}"))
    print_fields(pairs)
