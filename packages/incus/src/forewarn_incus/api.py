"""What the driver asks of Incus: instances, their notes and states, and the members of a cluster.

What was done to an instance is written into its own configuration, as `user.forewarn-event`, so
that it outlives the server and the driver, and travels with the instance.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from forewarn_incus.options import IncusOptions

NOTE = "user.forewarn-event"
BEGUN, FROZEN, OVER = "begun", "frozen", "over"  # stages
ANSWER = 10.0  # seconds for an answer
GRACE = 60.0  # seconds for an operation, beside the time in which an instance may shut down
ALONE = "none"  # the location of an instance if the server is not a member of a cluster

_SUCCESS = 200  # of an operation; one with a smaller code is not over
UUID = "volatile.uuid"  # what a copy that a move makes has in common with the instance
_SESSIONS = ("Executing command", "Showing console")  # last as long as somebody is there
# A move copies an instance to such a name, deletes it, and gives its name to the copy.
_TEMPORARY = re.compile(r"(lxd|incus)-move-(of-)?[0-9a-f-]+")

RUNNING, STATE_FROZEN, STOPPED, ERROR = "Running", "Frozen", "Stopped", "Error"


class IncusError(Exception):
    """The server has refused something, or it was not done."""


class NotReached(IncusError):
    """The server did not answer, and it is not known what it has done."""


class Moving(IncusError):
    """An instance does not have its name at present: it is being moved."""


class Misnamed(IncusError):
    """An instance may be the one that a move that has not ended has left with another name."""


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far an event is with one instance."""

    event: str = ""
    fence: int = 0
    stage: str = ""
    target: str = ""  # the member that it moves to
    since: int = 0  # when this began, by the service's clock, in microseconds
    started: str = ""  # when the instance had been started before, as the server says


class _Address(msgspec.Struct):
    address: str = ""
    scope: str = ""


class _Network(msgspec.Struct):
    addresses: list[_Address] = []
    hwaddr: str = ""
    host_name: str = ""  # of its other end, on the member


class State(msgspec.Struct):
    network: dict[str, _Network] | None = None


class Instance(msgspec.Struct, frozen=True):
    name: str
    status: str
    location: str = ALONE
    type: str = "container"
    ephemeral: bool = False
    last_used_at: str = ""  # when it was started
    expanded_config: dict[str, str] | None = None  # its own, and that of its profiles
    state: State | None = None

    @property
    def note(self) -> Note:
        """Its note, an empty one if it has none or one that cannot be read."""
        try:
            return msgspec.json.decode(self.configured(NOTE) or "{}", type=Note)
        except msgspec.DecodeError:
            return Note()  # somebody has changed it

    @property
    def is_temporary(self) -> bool:
        return _TEMPORARY.fullmatch(self.name) is not None

    @property
    def is_unknown(self) -> bool:
        """Did its member not say anything about it?"""
        return self.status == ERROR and self.state is None

    @property
    def can_move_live(self) -> bool:
        stateful = self.configured("migration.stateful") in ("true", "1", "yes", "on")
        return self.type == "virtual-machine" and stateful

    def configured(self, key: str) -> str:
        return (self.expanded_config or {}).get(key, "")


class _Operation(msgspec.Struct):
    id: str
    status_code: int
    err: str = ""
    description: str = ""
    resources: dict[str, list[str] | None] | None = None

    def concerns(self, name: str) -> bool:
        """Does this change an instance, and is not over yet?"""
        paths = [path for paths in (self.resources or {}).values() for path in paths or ()]
        names = {urlsplit(path).path.rpartition("/")[2] for path in paths}
        is_over = self.status_code >= _SUCCESS
        return name in names and not is_over and self.description not in _SESSIONS


def misnamed(instances: Sequence[Instance]) -> list[str]:
    """Return the temporary names of instances that do not exist with their own names."""
    named = {one.configured(UUID) for one in instances if not one.is_temporary}
    return [one.name for one in instances if one.is_temporary and one.configured(UUID) not in named]


def _name(machine: str) -> str:
    """Return the name of the instance of a machine, which has no underscores."""
    return machine.replace("_", "-")


class Incus:
    """A server, or a cluster behind any of its members."""

    def __init__(self, options: IncusOptions) -> None:
        self._options = options
        self._client: httpx.AsyncClient | None = None

    async def instance(self, machine: str) -> Instance | None:
        """Return the instance of a machine, or None if it does not exist. That it does not have
        its name at present is an error."""
        name = _name(machine)
        if (found := await self._named(name)) is not None:
            return found
        if doing := await self.operation(machine):
            raise Moving(f"{name}: {doing}")
        if (found := await self._named(name)) is not None:  # the operation was over in between
            return found
        if others := misnamed(await self.instances()):
            raise Misnamed(f"there is no instance {name}, but {others[0]}, left by a move")
        return None

    async def _named(self, name: str) -> Instance | None:
        found = await self._ask("GET", f"/instances/{quote(name)}", missing=None)
        return None if found is None else msgspec.convert(found, Instance)

    async def instances(self) -> list[Instance]:
        """Return all instances, with their states."""
        return msgspec.convert(await self._ask("GET", "/instances?recursion=2"), list[Instance])

    async def members(self) -> set[str]:
        """Return the members of the cluster that are online; none if there is no cluster."""
        server = await self._ask("GET", "")
        if not server["environment"].get("server_clustered"):
            return set()
        members = await self._ask("GET", "/cluster/members?recursion=1")
        return {member["server_name"] for member in members if member["status"] == "Online"}

    async def operation(self, machine: str) -> str:
        """Describe what is being done to an instance at present; empty: nothing."""
        by_state = await self._ask("GET", "/operations?recursion=1")
        for operations in (by_state or {}).values():
            for operation in msgspec.convert(operations, list[_Operation]):
                if operation.concerns(_name(machine)):
                    return operation.description or "an operation"
        return ""

    async def write(self, name: str, note: Note) -> None:
        value = msgspec.json.encode(note).decode()
        await self._ask("PATCH", f"/instances/{quote(name)}", {"config": {NOTE: value}})

    async def set_state(self, name: str, action: str, *, patience: float = 0.0) -> None:
        """Freeze, unfreeze, start or stop an instance. With patience it is asked to shut down, and
        stopped after so many seconds."""
        if patience:
            try:
                await self._put_state(name, {"action": action, "timeout": int(patience)}, patience)
                return
            except NotReached:
                raise
            except IncusError:
                pass  # it has not shut down, or cannot
        await self._put_state(name, {"action": action, "force": action == "stop"}, 0.0)

    async def _put_state(self, name: str, wanted: dict[str, Any], patience: float) -> None:
        await self._ask("PUT", f"/instances/{quote(name)}/state", wanted, patience=patience)

    async def move(self, name: str, target: str, *, live: bool) -> None:
        body = {"name": name, "migration": True, "live": live}
        path = f"/instances/{quote(name)}?target={quote(target)}"
        await self._ask("POST", path, body, patience=float("inf"))

    async def delete(self, name: str) -> None:
        await self._ask("DELETE", f"/instances/{quote(name)}", missing=None)

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def _ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        patience: float = 0.0,
        missing: object = IncusError,
    ) -> Any:
        """Send a request, and wait until what it begins is over. Returns `missing` for what does
        not exist, if that is no error."""
        answer = await self._send(method, path, body)
        if answer.get("error_code") == 404 and missing is not IncusError:
            return missing
        if answer["type"] == "error":
            raise IncusError(answer.get("error") or f"{method} {path} was refused")
        if answer["type"] == "async":
            await self._wait(answer["operation"].removeprefix("/1.0"), patience + GRACE)
        return answer.get("metadata")

    async def _wait(self, operation: str, patience: float) -> None:
        path = f"{operation}/wait" + (f"?timeout={int(patience)}" if patience < 1e9 else "")
        answer = await self._send("GET", path, timeout=None)
        if answer["type"] == "error":
            raise NotReached(answer.get("error") or "what has become of an operation is not known")
        ended = msgspec.convert(answer["metadata"], _Operation)
        if ended.status_code < _SUCCESS:
            raise NotReached(f"{ended.description or 'an operation'} is not over yet")
        if ended.status_code != _SUCCESS:
            raise IncusError(ended.err or f"{ended.description or 'an operation'} failed")

    async def _send(
        self, method: str, path: str, body: object = None, *, timeout: float | None = ANSWER
    ) -> dict[str, Any]:
        if self._client is None:
            self._client = self._connect()
        project = f"{'&' if '?' in path else '?'}project={quote(self._options.project)}"
        try:
            response = await self._client.request(
                method, f"/1.0{path}{project}", json=body, timeout=timeout
            )
            answer = response.json()
        except (httpx.HTTPError, OSError) as error:
            why = str(error) or type(error).__name__
            raise NotReached(f"{self._options.url} does not answer: {why}") from error
        except ValueError:
            raise NotReached(f"{self._options.url} did not answer as Incus does") from None
        if not isinstance(answer, dict) or "type" not in answer:
            raise NotReached(f"{self._options.url} did not answer as Incus does")
        return dict(answer)

    def _connect(self) -> httpx.AsyncClient:
        url = urlsplit(self._options.url)
        if url.scheme == "unix":
            socket = httpx.AsyncHTTPTransport(uds=url.path)
            return httpx.AsyncClient(transport=socket, base_url="http://incus")
        context = ssl.create_default_context(cafile=self._options.ca)
        # Servers certify themselves for names that need not be those in the URL.
        context.check_hostname = False
        context.load_cert_chain(self._options.certificate, self._options.key)
        return httpx.AsyncClient(verify=context, base_url=self._options.url, trust_env=False)
