"""`arm` in the settings of `forewarn serve`: it has the certificate of the control API, also when
that changes."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from forewarn.node.config import Tls
from helpers.certificates import Authority
from helpers.notify_socket import NotifySocket
from helpers.serve_process import running_service, write_settings
from helpers.token_api import Api

ENDPOINTS = "/metadata/endpoints?api-version=2022-09-01"


def serial(url: str, trusted: ssl.SSLContext) -> int:
    """Return that of the certificate that a new connection is shown."""
    place = urlsplit(url)
    with (
        socket.create_connection((place.hostname, place.port), 20) as plain,
        trusted.wrap_socket(plain, server_hostname=place.hostname) as secured,
    ):
        return int(str((secured.getpeercert() or {})["serialNumber"]), 16)


def test_arm_shows_each_new_certificate_of_the_control_api(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("127.0.0.1")
    tls = f'tls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
    settings = write_settings(tmp_path, f'arm = "127.0.0.1:0"\n{tls}')
    address = f"@forewarn-arm-{os.getpid()}"
    with (
        NotifySocket(address) as manager,
        running_service(tmp_path, settings, env={"NOTIFY_SOCKET": address}) as service,
    ):
        ready = manager.until("READY")
        assert service.arm in ready["STATUS"]
        arm, trusted = service.arm, authority.trusted()
        answer = Api(arm, tls=trusted).get(ENDPOINTS)
        assert answer.json()["resourceManager"] == arm
        before = serial(arm, trusted)
        assert before == serial(service.control, trusted)
        other = Tls(tmp_path / "other.pem", tmp_path / "other.key")
        authority.issue("127.0.0.1", into=other)
        text = settings.read_text().replace(str(pair.certificate), str(other.certificate))
        settings.write_text(text.replace(str(pair.key), str(other.key)))
        service.running.process.send_signal(signal.SIGHUP)
        manager.until("RELOADING")
        manager.until("READY")
        assert serial(arm, trusted) == serial(service.control, trusted) != before
