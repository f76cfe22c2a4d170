"""`forewarn node join` and `forewarn driver join`: get the certificate of a host's node, or of its
driver process, with a token, and write its settings.

The token contains the fingerprint of the authority that has issued control's certificate. Its
certificate is asked for first, over a connection that proves nothing, and must have that
fingerprint; the token is sent only to whom this authority vouches for. The key of the node is made
here and stays here.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import re
import socket
import ssl
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from forewarn.metadata.publishing.messages import (
    AskAuthority,
    AuthorityAnswer,
    Issued,
    Join,
    ToNewHost,
    Unwelcome,
)
from forewarn.node import install_rules
from forewarn.node.config import Address, Tls
from forewarn.node.listening.certificates import examine
from forewarn.node.settings.toml_lines import lines
from forewarn.service.access import secret
from forewarn.service.access.authority import new_request
from forewarn.support import guard
from forewarn.support.files.replace import replace
from forewarn.support.message_stream import BrokenConnection, MessageStream

ANSWER_WITHIN = 30.0  # seconds in which control has to answer; others may be before this host
TRY_FOR = 60.0  # seconds: control nodes may be taking over, or many hosts join at once
TRY_AGAIN = (0.5, 3.0)  # seconds after all addresses were tried, so that hosts take turns
NODE_UNITS = ("forewarn-node.socket", "forewarn-node.service")
DRIVER_UNITS = ("forewarn-driver.service",)
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class CannotJoin(Exception):
    """The host cannot join; the message says why. Nothing was changed."""


class Token(msgspec.Struct, frozen=True):
    text: str
    fingerprint: str  # of the authority's certificate

    @classmethod
    def parse(cls, text: str) -> Token:
        token, _, fingerprint = text.strip().partition(".")
        if not secret.id_of(token) or not _FINGERPRINT.fullmatch(fingerprint):
            raise CannotJoin(
                "this is not a token for a host, or not all of it; 'forewarn host enroll' prints"
                " the whole line"
            )
        return cls(token, fingerprint)


class Joined(msgspec.Struct, frozen=True):
    """What control has issued, and the key that it is for."""

    issued: Issued
    key: bytes


class Files(msgspec.Struct, frozen=True):
    """What is written: the settings, and in the directory of the node, or of the driver process,
    what it has to renew."""

    config: Path
    directory: Path
    driver: bool = False

    @property
    def tls(self) -> Tls:
        name = "driver" if self.driver else "node"
        return Tls(self.directory / f"{name}.pem", self.directory / f"{name}.key")

    @property
    def authority(self) -> Path:
        return self.directory / "nodes-authority.pem"

    def problem(self) -> str:
        """Return why they could not be written, or ""."""
        for directory in (self.config.parent, self.directory):
            if not directory.is_dir():
                return f"{directory} does not exist; install the package of a node first"
            if not os.access(directory, os.W_OK | os.X_OK):
                return f"{directory} cannot be written by this user; run this as root"
        if self.config.exists() and not os.access(self.config, os.R_OK | os.W_OK):
            return f"{self.config} cannot be written by this user; run this as root"
        return ""

    def write(self, joined: Joined) -> None:
        """Write all of them, each at once, for the user that owns the directory of the node."""
        issued, tls = joined.issued, self.tls
        text = self.config.read_text() if self.config.exists() else ""
        settings: dict[str, str | list[str]] = {
            "host": issued.host,
            "control": list(issued.control),
            "certificate": str(tls.certificate),
            "key": str(tls.key),
            "authority": str(self.authority),
        }
        contents = {
            tls.key: (joined.key, 0o600),
            tls.certificate: (issued.certificate.encode(), 0o644),
            self.authority: (issued.trusted.encode(), 0o644),
        }
        for path, (content, mode) in contents.items():
            replace(path, content, mode=mode, owner=_owner(self.directory))
        own = _owner(self.config if self.config.exists() else self.config.parent)
        new = with_settings(text, settings).encode()
        replace(self.config, new, mode=0o644, owner=own)


def _owner(path: Path) -> tuple[int, int] | None:
    """Return who owns a file, if another user's files can be written at all."""
    status = path.stat()
    return (status.st_uid, status.st_gid) if os.geteuid() == 0 else None


def with_settings(text: str, settings: dict[str, str | list[str]]) -> str:
    """Return a TOML text with these settings at the place of those that it has, or at its
    beginning; everything else stays as it is."""
    line_of, rows, added = lines(text), text.split("\n"), []
    for key, value in settings.items():
        written = f"{key} = {msgspec.json.encode(value).decode()}"
        if (number := line_of.get((key,))) is None:
            added.append(written)
        else:
            end = _end(rows, number)
            rows[number - 1 : end] = [written, *[""] * (end - number)]  # other lines stay in place
    return "\n".join([*added, *rows])


def _end(rows: Sequence[str], start: int) -> int:
    """Return the last line of the statement that begins in line `start`."""
    end = start
    while not _complete("\n".join(rows[start - 1 : end])):
        end += 1
    return end


def _complete(statement: str) -> bool:
    try:
        return bool(tomllib.loads(statement))
    except tomllib.TOMLDecodeError:
        return False


# Control.


async def ask(
    addresses: Sequence[Address], token: Token, host: str, *, driver: bool = False
) -> Joined:
    """Ask control for a certificate, one control node after the other. Raises CannotJoin."""
    key, request = new_request(host or socket.gethostname())
    problems: dict[Address, str] = {}
    end = guard.monotonic() + TRY_FOR
    while True:
        for address in addresses:
            try:
                join = Join(
                    token=token.text,
                    request=request,
                    host=host,
                    machine=socket.gethostname(),
                    driver=driver,
                )
                return Joined(await _ask(address, token, join), key)
            except (OSError, BrokenConnection, TimeoutError) as error:
                problems[address] = _reason(error)
        if guard.monotonic() >= end:
            reasons = "; ".join(f"{address}: {why}" for address, why in problems.items())
            raise CannotJoin(f"no control node enrolls this host: {reasons}")
        await guard.pause(random.uniform(*TRY_AGAIN))


async def _ask(address: Address, token: Token, join: Join) -> Issued:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    answer = await _exchange(address, anyone, AskAuthority())
    if not isinstance(answer, AuthorityAnswer):
        raise BrokenConnection("it enrolls no hosts")
    try:
        authority = ssl.PEM_cert_to_DER_cert(answer.certificate)
    except ValueError:
        authority = b""
    if hashlib.sha256(authority).hexdigest() != token.fingerprint:
        raise CannotJoin(
            f"{address} does not have the authority of the token: it is the control of another"
            " fleet, its authority was replaced, or somebody is in between. The token was not sent"
        )
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.minimum_version = ssl.TLSVersion.TLSv1_3
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusting.hostname_checks_common_name = False
    trusting.load_verify_locations(cadata=answer.certificate)
    try:
        issued = await _exchange(address, trusting, join)
    except ssl.SSLCertVerificationError as error:
        raise CannotJoin(
            f"the certificate of {address} is not accepted: {error.verify_message}. The token was"
            " not sent"
        ) from error
    if isinstance(issued, Unwelcome):
        raise CannotJoin(issued.reason)
    if not isinstance(issued, Issued):
        raise BrokenConnection("it did not answer the request")
    return issued


async def _exchange(
    address: Address, context: ssl.SSLContext, message: AskAuthority | Join
) -> ToNewHost:
    async with asyncio.timeout(ANSWER_WITHIN):
        _, stream = await asyncio.get_running_loop().create_connection(
            lambda: MessageStream[ToNewHost](ToNewHost), address.host, address.port, ssl=context
        )
        try:
            stream.send(message)
            return await stream.receive()
        finally:
            stream.cut()


def check(joined: Joined, files: Files) -> None:
    """Check that what control has issued can be used. Raises CannotJoin."""
    with tempfile.TemporaryDirectory() as name:
        trial = Files(files.config, Path(name), files.driver)
        trial.tls.key.touch(mode=0o600)
        trial.tls.key.write_bytes(joined.key)
        trial.tls.certificate.write_text(joined.issued.certificate)
        trial.authority.write_text(joined.issued.trusted)
        pair = examine(trial.tls.certificate, trial.tls.key, trial.authority, of_client=True)
    if pair.problem:
        problem = pair.problem.replace(f"{name}/", "")
        raise CannotJoin(f"the certificate from control cannot be used here: {problem}")


# The service manager.


def start_units(units: Sequence[str] = NODE_UNITS) -> str:
    """Enable and start the units of the package. Returns what has gone wrong, or ""."""
    if not Path("/run/systemd/system").is_dir():
        return "systemd does not run here"
    commands = [
        ("enable", *units),
        *(("start", unit) for unit in units[:-1]),
        ("restart", units[-1]),
    ]
    return install_rules.run([("systemctl", *command) for command in commands])


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "it does not answer"
    return getattr(error, "strerror", "") or str(error)
