"""What the driver asks of Incus: instances, their notes and states, and the members of a cluster.

What was done to an instance is written into its own configuration, as `user.forewarn-event`, so
that it outlives the server and the driver, and travels with the instance.
"""

from __future__ import annotations

import ssl
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

RUNNING, STATE_FROZEN, STOPPED = "Running", "Frozen", "Stopped"


class IncusError(Exception):
    """The server has refused something, or it was not done."""


class NotReached(IncusError):
    """The server did not answer, and it is not known what it has done."""


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
    resources: dict[str, list[str]] | None = None


class Incus:
    """A server, or a cluster behind any of its members."""

    def __init__(self, options: IncusOptions) -> None:
        self._options = options
        self._client: httpx.AsyncClient | None = None

    async def instance(self, machine: str) -> Instance | None:
        """Return the instance of a machine; the names of instances have no underscores."""
        name = machine.replace("_", "-")
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

    async def operation(self, name: str) -> str:
        """Describe what is being done to an instance at present; empty: nothing."""
        by_state = await self._ask("GET", "/operations?recursion=1")
        for item in (by_state or {}).get("running", ()):
            operation = msgspec.convert(item, _Operation)
            names = {
                path.rpartition("/")[2]
                for paths in (operation.resources or {}).values()
                for path in paths
            }
            if name in names:
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
        if ended.status_code in (103, 105, 106):  # running, pending, starting
            raise NotReached(f"{ended.description or 'an operation'} is not over yet")
        if ended.status_code != 200:
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
