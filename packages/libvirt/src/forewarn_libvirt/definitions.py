"""The definitions of machines, in a directory that outlives their hosts, as HOST/NAME.xml."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from forewarn_libvirt.hosts import Domain


class NotKept(Exception):
    """A definition cannot be written; the message says why."""


class Definitions:
    """What domains are defined with, by host; without a directory, nothing is kept."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self.problem = ""  # why nothing could be kept when that was tried last

    def __bool__(self) -> bool:
        return self._directory is not None

    def try_to_keep(self) -> None:
        """Find out whether anything can be kept."""
        if self._directory is not None:
            with contextlib.suppress(NotKept), self._keeping():
                self._directory.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=self._directory).close()

    def keep(self, domain: Domain) -> None:
        """Write the definition of a domain, unless it is the one that is kept. Raises NotKept."""
        if self._directory is None or not domain.persistent:
            return
        path = self._path(domain.host, str(domain.handle.name()))
        definition = domain.definition()
        with self._keeping():
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.read_text() == definition:
                return
            # Passwords of consoles are part of it: mkstemp lets nobody else read the file.
            fd, fresh = tempfile.mkstemp(dir=path.parent, suffix=".new")
            with os.fdopen(fd, "w") as file:
                file.write(definition)
                file.flush()
                os.fsync(file.fileno())
            Path(fresh).replace(path)

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.problem = f"definitions cannot be kept in {self._directory}: {error.strerror}"
            raise NotKept(self.problem) from error
        self.problem = ""

    def find(self, host: str, name: str, vm_id: str) -> str | None:
        """Return the definition of a machine that was on a host, by its UUID or else its name."""
        if self._directory is None:
            return None
        kept = {path: path.read_text() for path in (self._directory / host).glob("*.xml")}
        for definition in kept.values():
            if vm_id and ElementTree.fromstring(definition).findtext("uuid") == vm_id.lower():
                return definition
        return kept.get(self._path(host, name))

    def forget(self, host: str, name: str) -> None:
        """Raises NotKept."""
        if self._directory is not None:
            with self._keeping():
                self._path(host, name).unlink(missing_ok=True)

    def _path(self, host: str, name: str) -> Path:
        assert self._directory is not None
        return self._directory / host / f"{name}.xml"
