"""`service.arm`: what Azure's SDKs and `az` need to use a service as Azure Resource Manager."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from forewarn.node.config import ArmListener
from forewarn.service.engine.catch_up import POLL_PATIENCE
from forewarn.support import extras, guard
from forewarn.support.azure_names import AZURE_NAMES
from forewarn.testing.durations import Duration, in_seconds
from forewarn.testing.errors import RefusedError
from forewarn.testing.session import LOOPBACK, Session, refuse_in_a_loop

if TYPE_CHECKING:
    from forewarn.control.schema.notify import NotifyState
    from forewarn.notify.config import Notify

TOKEN_LASTS = 3_600  # seconds
RETRY_AFTER = 0.05  # seconds until a webhook is looked at again
LOCAL_TOKEN = "local"  # while the service has no tokens, it takes any from this computer
NOT_ASKED_FOR = "this service has no API for Azure's SDKs; use Service(arm=True)"

_WHAT = "Service(arm=True)"


class AccessToken(NamedTuple):
    """A token, in the form that azure-core uses."""

    token: str
    """What is sent."""

    expires_on: int
    """When a client asks for another one, in seconds since 1970."""

    token_type: str = "Bearer"
    """How it is sent."""

    refresh_on: int | None = None
    """Not used."""


class Credential:
    """A credential for Azure's SDKs, which no other service accepts.

    Args:
        token: A token of the service, if it has any.
    """

    def __init__(self, token: str = LOCAL_TOKEN) -> None:
        self._token = token

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return the token, whatever it is wanted for.

        Args:
            scopes: Not used.
            options: Not used.
        """
        del scopes, options
        return AccessToken(self._token, guard.wall_us() // 1_000_000 + TOKEN_LASTS)

    def get_token_info(self, *scopes: str, options: Any = None) -> AccessToken:
        """Return the token, as newer versions of azure-core ask for it.

        Args:
            scopes: Not used.
            options: Not used.
        """
        return self.get_token(*scopes, options=options)


class AsyncCredential:
    """A credential for the asynchronous clients of Azure's SDKs.

    Args:
        token: A token of the service, if it has any.
    """

    def __init__(self, token: str = LOCAL_TOKEN) -> None:
        self._credential = Credential(token)

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return the token, whatever it is wanted for.

        Args:
            scopes: Not used.
            options: Not used.
        """
        return self._credential.get_token(*scopes, **options)

    async def get_token_info(self, *scopes: str, options: Any = None) -> AccessToken:
        """Return the token, as newer versions of azure-core ask for it.

        Args:
            scopes: Not used.
            options: Not used.
        """
        return self._credential.get_token_info(*scopes, options=options)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def __aenter__(self) -> AsyncCredential:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Arm:
    """Azure Resource Manager, as a service imitates it: `service.arm`."""

    url: str
    """The URL of the API: the `base_url` of an SDK's client."""

    ca: Path
    """The file with the certificate that clients have to trust."""

    credential: Credential
    """The credential for an SDK's client."""

    async_credential: AsyncCredential
    """The credential for an SDK's asynchronous client."""

    subscription: str
    """The subscription of machines whose group names none."""

    resource_group: str
    """The resource group of machines whose group names none."""

    def __init__(
        self, url: str, ca: Path, session: Any
    ) -> None:  # Any: what it is, is not for users
        from forewarn.control.views.azure import DEFAULT_RESOURCE_GROUP, DEFAULT_SUBSCRIPTION

        self.url, self.ca = url, ca
        self._session: Session = session
        self._tables: list[Notify] = []  # of the webhooks
        self.subscription, self.resource_group = DEFAULT_SUBSCRIPTION, DEFAULT_RESOURCE_GROUP
        self.credential, self.async_credential = Credential(), AsyncCredential()

    def send_events(
        self,
        url: str,
        *,
        schema: Literal["EventGridSchema", "CloudEventSchemaV1_0"] = "EventGridSchema",
        subject_begins_with: str = "",
    ) -> None:
        """Send the events of groups that publish theirs to a webhook, as Azure's Event Grid does.

        What happens from now on is sent, once the webhook has validated the subscription.

        Args:
            url: The URL of the webhook.
            schema: The schema of the events.
            subject_begins_with: The beginning of the ids of events that are sent, such as that of a
                resource group or a scale set; by default all are.

        Raises:
            RefusedError: The webhook cannot be reached, or does not validate the subscription.
        """
        from forewarn.notify.config import EventGrid, Notify

        refuse_in_a_loop("send_events()")
        target = EventGrid(url=url, schema=schema, subject_begins_with=subject_begins_with)
        table = Notify(name=f"event-grid-{len(self._tables) + 1}", event_grid=target)
        if problems := [problem for _, problem in table.problems()]:
            raise RefusedError(f"url {problems[0]}")
        if problem := self._session.run(self._subscribe(table)):
            raise RefusedError(problem)

    async def _subscribe(self, table: Notify) -> str:
        """Return why events cannot be sent; empty if they are."""
        node = self._session.node
        await node.configure_notifications([*self._tables, table])
        assert node.notifications is not None
        test: Any = await node.notifications.test(table.name)
        if test.error:
            await node.configure_notifications(self._tables)
        else:
            self._tables.append(table)
        return str(test.error)

    def wait_for_events(self, *, timeout: Duration = POLL_PATIENCE) -> None:
        """Wait until webhooks have received all that has happened so far.

        A webhook that has failed is tried again at once.

        Args:
            timeout: The real time to wait, by default 5 seconds.

        Raises:
            RefusedError: A webhook has not received everything; the message says why.
        """
        refuse_in_a_loop("wait_for_events()")
        if problem := self._session.run(self._wait(in_seconds(timeout))):
            raise RefusedError(problem)

    async def _wait(self, seconds: float) -> str:
        """Return why something has not been received; empty if everything has."""
        node = self._session.node
        seq = node.feed.seq

        def pending() -> list[NotifyState]:
            states = node.notifications.states() if node.notifications else []
            return [state for state in states if state.position < seq]

        try:
            async with asyncio.timeout(seconds):
                while states := pending():
                    if any(state.last_error for state in states):
                        await node.configure_notifications(self._tables)  # tries again
                    await guard.pause(RETRY_AFTER)
        except TimeoutError:
            for state in pending():
                return state.last_error or f"{state.where} has not received everything"
        return ""


class ArmSocket:
    """The socket of the API, and the certificate that is made for it."""

    def __init__(self) -> None:
        extras.need("server", _WHAT)
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def open(self, session: Session) -> Arm:
        from forewarn.node.listening.make_certificate import make_certificate

        self._directory = tempfile.TemporaryDirectory(prefix="forewarn-")
        names = [LOOPBACK.host, "localhost", *AZURE_NAMES]
        tls = make_certificate(Path(self._directory.name), names)
        session.run(session.node.open_arm(ArmListener(LOOPBACK, tls)))
        return Arm(session.node.arm_url, tls.certificate, session)

    def close(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()
