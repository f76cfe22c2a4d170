"""Mail by SMTP, with STARTTLS or TLS. The id of a mail is the same for every attempt."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import tzinfo
from email.message import EmailMessage
from email.utils import format_datetime
from importlib.util import find_spec

from forewarn.control.notify import text
from forewarn.control.notify.config import Mail
from forewarn.control.notify.notification import Message
from forewarn.control.notify.targets.port import (
    DeliveryFailed,
    Sender,
    reason,
    secret,
    secret_problems,
    ssl_context,
)
from forewarn.support.text import listing

MISSING = "mail needs aiosmtplib: pip install 'forewarn[server,notify]'"
_PERMANENT = range(500, 600)  # replies after which another attempt hardly helps


class MailSender(Sender):
    def __init__(self, options: Mail, zone: tzinfo) -> None:
        self._options = options
        self._zone = zone
        self._context: ssl.SSLContext | None = None

    @property
    def where(self) -> str:
        return f"{listing(self._options.to)} by {self._options.server}"

    def check(self) -> Iterator[str]:
        if not find_spec("aiosmtplib"):
            yield MISSING
        yield from secret_problems(self._options.password_file, "password_file")
        try:
            ssl_context(self._options.ca)
        except DeliveryFailed as error:
            yield str(error)

    def prepare(self) -> None:
        try:
            import aiosmtplib  # noqa: F401
        except ImportError:
            raise DeliveryFailed(MISSING) from None
        if self._context is None and self._options.security != "none":
            self._context = ssl_context(self._options.ca)

    async def send(self, message: Message) -> str:
        import aiosmtplib

        options = self._options
        host, port = options.address
        password = secret(options.password_file, "password_file") if options.username else None
        try:
            refused, _ = await aiosmtplib.send(
                self._mail(message),
                hostname=host,
                port=port,
                username=options.username or None,
                password=password,
                use_tls=options.security == "tls",
                start_tls=options.security == "starttls",
                tls_context=self._context,
                timeout=None,  # the caller has one
            )
        except aiosmtplib.SMTPRecipientsRefused as error:
            reasons = {reply.recipient: reply.code for reply in error.recipients}
            raise DeliveryFailed(
                f"{options.server} refuses every recipient: {_codes(reasons)}",
                refused=all(code in _PERMANENT for code in reasons.values()),
            ) from None
        except aiosmtplib.SMTPResponseException as error:
            login = isinstance(error, aiosmtplib.SMTPAuthenticationError)
            what = "the user name or password" if login else "the mail"
            raise DeliveryFailed(
                f"{options.server} refuses {what} with {error.code}",
                refused=error.code in _PERMANENT,
            ) from None
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            raise DeliveryFailed(f"{options.server}: {reason(error)}") from None
        if not refused:
            return ""
        codes = {name: reply.code for name, reply in refused.items()}
        return f"{options.server} refused some recipients: {_codes(codes)}"

    def _mail(self, message: Message) -> EmailMessage:
        options = self._options
        mail = EmailMessage()
        mail["From"] = options.from_
        mail["To"] = ", ".join(options.to)
        mail["Subject"] = f"[forewarn] {text.subject(message, self._zone)}"
        mail["Date"] = format_datetime(message.at)
        mail["Message-ID"] = f"<{message.id}@{options.from_.rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Forewarn-Kind"] = message.what
        mail["X-Forewarn-Severity"] = message.severity
        mail.set_content(text.body(message, self._zone) + "\n")
        return mail


def _codes(codes: dict[str, int]) -> str:
    return listing([f"{recipient} ({code})" for recipient, code in codes.items()])
