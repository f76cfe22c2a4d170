"""Notifications for people: mail and Apprise, and one message for what happened meanwhile."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Coroutine
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from forewarn.control.notify import follower
from forewarn.control.notify.config import Notify
from forewarn.core.time import MINUTE
from forewarn.store.memory import Disk
from helpers.certificates import Authority
from helpers.hook_receivers import Web
from helpers.notifying_service import received, secret_file, table, world
from helpers.waiting import until_async

PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "FIRST_PAUSE", 0.01)


class Mailbox:
    """Keeps what it gets; refuses as often as it is told to, and always one recipient."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.refuse = 0
        self.refused: list[EmailMessage] = []

    async def handle_RCPT(  # noqa: N802 - not our name
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        if address.startswith("gone@"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - not our name
        self, _server: Any, _session: Any, envelope: Any
    ) -> str:
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        if self.refuse:
            self.refuse -= 1
            self.refused.append(mail)
            return "451 try again later"
        self.mails.append(mail)
        return "250 OK"


class MailServer:
    def __init__(self, directory: Path) -> None:
        self.mailbox = Mailbox()
        self.authority = Authority(directory)
        pair = self.authority.issue("127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._settings: dict[str, Any] = {
            "tls_context": context,
            "require_starttls": True,
            "auth_required": True,
            "authenticator": _authenticate,
        }
        self.port = 0

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: SMTP(self.mailbox, **self._settings), "127.0.0.1", self.port
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def __aexit__(self, *_: object) -> None:
        self._server.close()


def _authenticate(*words: Any) -> AuthResult:
    valid = words[-1] == LoginPassword(b"forewarn", PASSWORD.encode())
    return AuthResult(success=valid, handled=False)


@pytest.fixture
def server(tmp_path: Path) -> MailServer:
    return MailServer(tmp_path)


def mail_table(directory: Path, server: MailServer, **fields: Any) -> Notify:
    mail = {
        "server": f"127.0.0.1:{server.port}",
        "from": "forewarn@example.org",
        "to": ["ops@example.org"],
        "username": "forewarn",
        "password_file": secret_file(directory, PASSWORD, "password"),
        "ca": str(server.authority.path),
    }
    return table(mail=mail | fields.pop("mail", {}), **{"at_most_every": "0s", **fields})


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_mail_is_sent_by_starttls_with_what_when_and_why(
    tmp_path: Path, server: MailServer
) -> None:
    wanted = {"kinds": ["raised"], "timezone": "Europe/Berlin"}

    async def play() -> None:
        async with server, world(mail_table(tmp_path, server, **wanted)) as w:
            event = await w.reboot("web-0", description="new kernel", duration=90)
            await until_async(lambda: server.mailbox.mails)
        mail = server.mailbox.mails[0]
        assert re.match(
            r"\[forewarn\] Reboot of web-0 .* announced, .* 09:15 CET \(08:15Z\)$", mail["Subject"]
        )
        assert mail["To"] == "ops@example.org"
        assert mail["Auto-Submitted"] == "auto-generated"
        assert mail["X-Forewarn-Kind"] == "raised"
        first, empty, *lines = mail.get_content().splitlines()
        assert (f"[forewarn] {first}", empty) == (f"{mail['Subject']}.", "")
        fields = dict(line.split(": ", 1) for line in lines)
        assert (fields["Why"], fields["By"], fields["Event"]) == ("new kernel", "ann", event)
        assert re.search("2027-01-15 09:15 CET .* 1 min 30 s", fields["When"])
        assert re.match("Reboot of web-0, .*web$", fields["What"])
        assert [f"forewarn event {verb} {event}" for verb in ("approve", "explain")] == [
            *fields.values()
        ][-2:]

    run(play())


def test_changes_during_a_failure_are_one_mail_that_keeps_its_id(
    tmp_path: Path, server: MailServer
) -> None:
    """The service is stopped while it tries to send the second mail."""
    mailbox, disk = server.mailbox, Disk()

    async def fill() -> None:
        config = mail_table(tmp_path, server, kinds=["raised", "started", "host-failed"])
        async with world(config, disk=disk) as w:
            await w.reboot("web-0")
            await until_async(lambda: w.state().messages == 1)
            mailbox.refuse = 1_000_000
            await w.reboot("db-0")
            await until_async(lambda: w.state().state == "failing")
            assert "451" in w.state().last_error
            await w.reboot("db-1")
            await w.advance(16 * MINUTE)
            await w.node.hosts.fail("h2", "ann")
        mailbox.refuse = 0
        async with world(config, disk=disk) as w:
            await until_async(lambda: w.state().messages == 2)

    async def play() -> None:
        async with server:
            await fill()

    run(play())
    first, again, rest = mailbox.mails
    assert again["Message-ID"] == mailbox.refused[0]["Message-ID"]
    assert again["Message-ID"] != first["Message-ID"]
    assert "Host h2" in rest["Subject"]
    assert rest["X-Forewarn-Severity"] == "error"
    assert "Reboot of db-1" in rest.get_content()


def test_mail_that_cannot_be_delivered_gives_an_error_without_secrets(
    tmp_path: Path, server: MailServer
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    cases: dict[str, dict[str, Any]] = {
        "trust": {"ca": str(other.path)},
        "password": {"password_file": secret_file(tmp_path, "hunter2", "wrong")},
        "recipient": {"to": ["gone@example.org"]},
        "some": {"to": ["gone@example.org", "ops@example.org"]},
    }
    errors: dict[str, str] = {}

    async def play() -> None:
        async with server:
            tables = [mail_table(tmp_path, server, name=k, mail=v) for k, v in cases.items()]
            async with world(*tables) as w:
                for name in cases:
                    outcome = await w.notifications.test(name)
                    errors[name] = outcome.error  # type: ignore[union-attr]

    run(play())
    where = f"127.0.0.1:{server.port}"
    assert re.match(f"{where}: .*certificate", errors["trust"])
    assert re.match(f"{where} .* 535", errors["password"])
    assert re.match(rf"{where} .* every .*: gone@example.org \(550\)", errors["recipient"])
    assert re.match(rf"{where} .* some .*: gone@example.org \(550\)", errors["some"])
    assert len(server.mailbox.mails) == 1


@pytest.mark.filterwarnings("ignore:'imghdr'")  # of a plugin of Apprise
def test_apprise_repeats_a_message_only_where_it_failed(tmp_path: Path) -> None:
    """Its target json:// posts to a web server."""
    with Web() as first, Web() as second:
        second.answers = [(500, {})]
        urls = "\n".join(f"json://127.0.0.1:{web.port}/s3cr3t" for web in (first, second))
        target = {"urls_file": secret_file(tmp_path, f"# chat\n{urls}", "urls")}

        async def play() -> None:
            config = table(apprise=target, kinds=["host-failed"], at_most_every="0s")
            async with world(config) as w:
                await w.node.hosts.fail("h1", "ann", note="power")
                await received(second, 2)
                await until_async(lambda: w.state().messages == 1)
                assert "s3cr3t" not in w.state().where

        run(play())
        assert len(first.received) == 1
        body = json.loads(second.received[1].body)
        assert body["title"].startswith("Host h1 ")
        assert body["type"] == "failure"
        assert "Why: power" in body["message"]
