"""The hook `log`: writes a line for each stage to the journal, with a field for each fact, or to
syslog. The protocols are here; the text comes from `wording.py`."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from forewarn.agent.hooks import wording
from forewarn.agent.hooks.contract import Call, Failure, Run
from forewarn.agent.hooks.options import Log, address
from forewarn.support import guard
from forewarn.support.instants import to_datetime
from forewarn.support.text import visible

JOURNAL = "/run/systemd/journal/socket"
TIMEOUT = 5.0  # seconds to write a line
MAX_LINE = 2_000  # bytes of a line for syslog, which may cut longer ones anywhere
MAX_FACTS = 1_400  # bytes of structured data in it; the text follows
ENTERPRISE = "forewarn@32473"  # RFC 5424 requires a number; this one is reserved for examples

_FACILITIES = {"user": 1, "daemon": 3, "auth": 4, "cron": 9, "authpriv": 10} | {
    f"local{number}": 16 + number for number in range(8)
}
_PRIORITIES = {"err": 3, "warning": 4, "notice": 5, "info": 6, "debug": 7}


def act(run: Run, options: Log) -> list[str]:
    to = _destination(options)
    try:
        if to == "journal":
            _send_local(JOURNAL, journal_entry(run.call, options))
        elif options.address.startswith("/"):
            _send_local(options.address, local_line(run.call, options, _now()))
        else:
            _send_udp(options.address, network_line(run.call, options, _now()))
    except OSError as error:
        where = JOURNAL if to == "journal" else options.address
        raise Failure(f"{to} at {where} cannot be written to: {error.strerror or error}") from None
    except UnicodeError:
        raise Failure(f"{to} at {options.address}: the host name is not valid") from None
    return [f"logged to {to}: {wording.headline(run.call)}"]


def check(options: Log) -> list[str]:
    try:
        to = _destination(options)
        if to == "syslog" and not options.address.startswith("/"):
            socket.getaddrinfo(*address(options.address, "address"), type=socket.SOCK_DGRAM)
        else:
            _connect(JOURNAL if to == "journal" else options.address).close()
    except Failure as failure:
        return [str(failure)]
    except OSError as error:
        return [f"the log cannot be written to: {error.strerror or error}"]
    except UnicodeError:
        return [f"address {options.address}: the host name is not valid"]
    return []


def _destination(options: Log) -> str:
    if options.to == "syslog" or (options.to == "auto" and not Path(JOURNAL).exists()):
        if options.address.startswith("/") and not Path(options.address).exists():
            neither = "neither a journal nor " if options.to == "auto" else "no "
            raise Failure(
                f"there is {neither}{options.address} on this machine; is a syslog running?"
            )
        return "syslog"
    if not Path(JOURNAL).exists():
        raise Failure(f'there is no journal on this machine ({JOURNAL}); set to = "syslog"')
    return "journal"


def journal_entry(call: Call, options: Log) -> bytes:
    """Return an entry in journald's native protocol: a field per line, or with its length if it has
    line breaks."""
    fields = [
        ("MESSAGE", visible(wording.sentence(call))),
        ("PRIORITY", str(_PRIORITIES[options.priority])),
        ("SYSLOG_IDENTIFIER", options.identifier),
        ("SYSLOG_FACILITY", str(_FACILITIES[options.facility])),
        *((f"FOREWARN_{name.upper()}", value) for name, value in _facts(call)),
    ]
    return b"".join(_field(name, value.encode(errors="replace")) for name, value in fields)


def local_line(call: Call, options: Log, now: datetime) -> bytes:
    """Return a line as syslog(3) writes it, without a host name."""
    day = f"{now:%b} {now.day:2} {now:%H:%M:%S}"
    head = f"<{_priority(options)}>{day} {options.identifier}[{os.getpid()}]: "
    text = visible(f"{wording.sentence(call)} [{' '.join(_pairs(call))}]")
    return _cut((head + text).encode(errors="replace"))


def network_line(call: Call, options: Log, now: datetime) -> bytes:
    """Return a line of RFC 5424 with the facts as structured data, as many as fit."""
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    host = socket.gethostname() or "-"
    head = f"<{_priority(options)}>1 {stamp} {host} {options.identifier} {os.getpid()}"
    line = f"{head} {call.stage} [{ENTERPRISE}".encode(errors="replace")
    for pair in _pairs(call):
        parameter = b" " + pair.encode(errors="replace")
        line += parameter if len(line) + len(parameter) < MAX_FACTS else b""
    return _cut(line + f"] {visible(wording.sentence(call))}".encode(errors="replace"))


def _facts(call: Call) -> Iterable[tuple[str, str]]:
    """Yield the name and value of every fact. Each machine is a fact of its own."""
    event = call.event
    yield from (("stage", call.stage), ("hook", call.hook), ("rule", call.rule))
    yield from (("machine", call.machine), ("mine", "true" if call.mine else "false"))
    yield from (("event_id", event.id), ("event_type", event.type), ("event_status", event.status))
    if event.not_before:
        yield "event_not_before", event.not_before
    if event.duration is not None:
        yield "event_duration", f"{event.duration:g}"
    if event.source:
        yield "event_source", event.source
    if event.description:
        yield "event_description", wording.description(call)
    yield from (("event_resource", name) for name in event.resources)  # last: they may be many


def _pairs(call: Call) -> list[str]:
    """Return `name="value"` pairs, without the description, which is in the text."""
    facts = [(name, value) for name, value in _facts(call) if name != "event_description"]
    return [visible(f'{name}="{_quoted(value)}"') for name, value in facts]


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")


def _field(name: str, value: bytes) -> bytes:
    if b"\n" not in value:
        return name.encode() + b"=" + value + b"\n"
    return name.encode() + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


def _priority(options: Log) -> int:
    return _FACILITIES[options.facility] * 8 + _PRIORITIES[options.priority]


def _cut(line: bytes) -> bytes:
    return line if len(line) <= MAX_LINE else line[:MAX_LINE].decode(errors="ignore").encode()


def _now() -> datetime:
    return to_datetime(guard.wall_us()).astimezone()


def _connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    connection.settimeout(TIMEOUT)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _send_local(path: str, data: bytes) -> None:
    with _connect(path) as connection:
        connection.sendall(data)


def _send_udp(where: str, data: bytes) -> None:
    host, port = address(where, "address")
    family, kind, *_, to = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as connection:
        connection.settimeout(TIMEOUT)
        connection.sendto(data, to)
