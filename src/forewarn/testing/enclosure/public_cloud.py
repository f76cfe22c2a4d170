"""Files with which a program inside takes the service for Azure's public cloud: a hosts file with
the cloud's names, and certificates that include the service's own."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path

from forewarn.support.azure_names import AZURE_NAMES

INSIDE = ("127.81.71.1", 443)  # where the names lead, in the namespace's own loopback
HOSTS = Path("/etc/hosts")
CONNECT_WITHIN = 5.0  # seconds

Address = tuple[str, int]


class NotThatCloud(Exception):
    """The service cannot take the place of the public cloud; the message says why."""


class PublicCloud:
    def __init__(self, service: Address, directory: Path) -> None:
        """Write the files for a service whose certificate is its own authority. Raises
        NotThatCloud."""
        certificate = _certificate_of(service)
        own, bundle = directory / "service.pem", directory / "certificates.pem"
        own.write_text(certificate)
        bundle.write_text(_trusted() + certificate)
        self.hosts = directory / "hosts"
        self.hosts.write_text(
            _text(HOSTS) + "".join(f"{INSIDE[0]} {name}\n" for name in AZURE_NAMES)
        )
        self.service = service
        self.environment = {
            **dict.fromkeys(("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"), str(bundle)),
            "NODE_EXTRA_CA_CERTS": str(own),
        }


def _certificate_of(service: Address) -> str:
    """Return the certificate of a service, which must be good for the names of the cloud."""
    try:
        certificate = ssl.get_server_certificate(service, timeout=CONNECT_WITHIN)
        for name in AZURE_NAMES:
            context = ssl.create_default_context(cadata=certificate)
            with (
                socket.create_connection(service, CONNECT_WITHIN) as connection,
                context.wrap_socket(connection, server_hostname=name),
            ):
                pass
    except ssl.SSLCertVerificationError as error:
        raise NotThatCloud(
            f"the certificate of {service[0]}:{service[1]} is not good for the names of Azure's"
            f" public cloud ({error.verify_message}); use that of forewarn dev --arm"
        ) from error
    except OSError as error:
        raise NotThatCloud(
            f"cannot connect to {service[0]}:{service[1]}: {error.strerror or error}"
        ) from error
    return certificate


def _trusted() -> str:
    """Return the certificates that programs trust anyway."""
    default = ssl.get_default_verify_paths().cafile
    file = os.environ.get("SSL_CERT_FILE") or default
    return _text(Path(file)) if file else ""


def _text(file: Path) -> str:
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return ""
    return text if text.endswith("\n") or not text else text + "\n"
