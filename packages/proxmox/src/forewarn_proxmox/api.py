"""What the driver asks of Proxmox VE's API, as its documentation describes it."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

ANSWER = 30.0  # seconds for an answer
MARK = "forewarn-event: "  # begins the line of a guest's notes that is the driver's


class ProxmoxError(Exception):
    """The server has refused something, or has not answered."""


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far an event is with one guest, in the guest's own notes."""

    event: str = ""
    fence: int = 0
    step: int = 0  # of the steps of this event: the one that is next, or at work
    node: str = ""  # on which that step was begun; empty: it was not
    before: str = ""  # the UPID of the last task of its kind before
    since: int = 0  # when it froze, by the service's clock, in microseconds
    target: str = ""


class Guest(msgspec.Struct, frozen=True):
    vmid: int
    node: str
    type: str  # qemu or lxc
    status: str  # running or stopped
    name: str = ""

    @property
    def path(self) -> str:
        return f"/nodes/{quote(self.node)}/{self.type}/{self.vmid}"


class TaskStatus(msgspec.Struct, frozen=True):
    status: str  # running or stopped
    exitstatus: str = ""


class Proxmox:
    def __init__(self, url: str, token_file: str, ca: str) -> None:
        self._url, self._token_file, self._ca = url, token_file, ca
        self._client: httpx.AsyncClient | None = None

    async def guest(self, name: str) -> Guest | None:
        """Return the guest of a machine; the names of guests have no underscores."""
        wanted = name.replace("_", "-")
        listed = msgspec.convert(await self.ask("GET", "/cluster/resources?type=vm"), list[Guest])
        return next((guest for guest in listed if guest.name == wanted), None)

    async def note(self, guest: Guest) -> Note:
        description = (await self.ask("GET", f"{guest.path}/config")).get("description", "")
        match = re.search(f"^{MARK}(.*)$", description, re.MULTILINE)
        try:
            return msgspec.json.decode(match[1], type=Note) if match else Note()
        except msgspec.DecodeError:
            return Note()  # somebody has changed it

    async def write(self, guest: Guest, note: Note) -> None:
        config = await self.ask("GET", f"{guest.path}/config")
        lines = [
            line for line in config.get("description", "").splitlines() if not line.startswith(MARK)
        ]
        lines.append(MARK + msgspec.json.encode(note).decode())
        data = {"description": "\n".join(lines), "digest": config.get("digest", "")}
        await self.ask("PUT", f"{guest.path}/config", data)

    async def nodes(self) -> set[str]:
        """Return the nodes that are online."""
        return {n["node"] for n in await self.ask("GET", "/nodes") if n.get("status") == "online"}

    async def task(self, upid: str) -> TaskStatus:
        node = upid.split(":")[1]  # UPID:node:pid:…
        path = f"/nodes/{quote(node)}/tasks/{quote(upid, safe='')}/status"
        return msgspec.convert(await self.ask("GET", path), TaskStatus)

    async def latest(self, guest: Guest, node: str, kind: str) -> str:
        """Return the UPID of the latest task of a kind about a guest; empty: there is none."""
        filters = f"vmid={guest.vmid}&typefilter={kind}&source=all&limit=1"
        tasks = await self.ask("GET", f"/nodes/{quote(node)}/tasks?{filters}")
        return str(tasks[0]["upid"]) if tasks else ""

    async def ask(self, method: str, path: str, data: Mapping[str, Any] | None = None) -> Any:
        try:
            if self._client is None:
                context = ssl.create_default_context(cafile=self._ca or None)
                self._client = httpx.AsyncClient(verify=context, timeout=ANSWER, trust_env=False)
            token = (await asyncio.to_thread(Path(self._token_file).read_text)).strip()
            response = await self._client.request(
                method,
                f"{self._url.rstrip('/')}/api2/json{path}",
                data=None if data is None else dict(data),
                headers={"authorization": f"PVEAPIToken={token}"},
            )
            if response.status_code != 200:
                raise ProxmoxError(f"{method} {path}: {response.status_code}")
            return response.json()["data"]
        except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
            raise ProxmoxError(f"{self._url}: {str(error) or type(error).__name__}") from error

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()
