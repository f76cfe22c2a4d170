"""`service.arm`: what Azure's SDKs and `az` need to use a service as Azure Resource Manager."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from forewarn.node.config import ArmListener
from forewarn.support import extras, guard
from forewarn.support.azure_names import AZURE_NAMES
from forewarn.testing.session import LOOPBACK, Session

TOKEN_LASTS = 3_600  # seconds
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

    def __init__(self, url: str, ca: Path) -> None:
        from forewarn.arm.inventory import DEFAULT_RESOURCE_GROUP, DEFAULT_SUBSCRIPTION

        self.url, self.ca = url, ca
        self.subscription, self.resource_group = DEFAULT_SUBSCRIPTION, DEFAULT_RESOURCE_GROUP
        self.credential, self.async_credential = Credential(), AsyncCredential()


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
        return Arm(session.node.arm_url, tls.certificate)

    def close(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()
