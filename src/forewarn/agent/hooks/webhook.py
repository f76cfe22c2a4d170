"""The hook `webhook`: posts the call to a URL, signed if there is a secret.

Redirects are not followed, and the body of a response is ignored. Messages contain only the scheme,
host and port of the URL, because the rest may be a secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import os
import ssl
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

import forewarn
from forewarn.agent.hooks.contract import Failure, Run, read_secret, wait
from forewarn.agent.hooks.options import Webhook, seconds
from forewarn.support.files.secret import secret_file_problems

LEAST = 0.5  # seconds; with less left, no request is sent
ATTEMPTS = 2  # within one run; the second only if the server sends Retry-After
_RETRY_STATUSES = {429, 502, 503, 504}

Headers: TypeAlias = dict[str, str]


def act(run: Run, options: Webhook) -> list[str]:
    url = _parse_url(options.url)
    where = _origin(url)
    connection, path, proxy_headers = _connection(url, options)
    headers = _headers(run, options, url) | proxy_headers
    for attempt in range(1, ATTEMPTS + 1):
        left = min(seconds(options.timeout), run.left())
        if left < LEAST:
            raise Failure(f"{where} was not called: there is no time left")
        connection.timeout = left
        status, retry_after = _post(connection, where, path, run.body, headers)
        if 200 <= status < 300:
            return [f"{where} answered {status}"]
        pause = _seconds(retry_after)
        retry = status in _RETRY_STATUSES and pause is not None and pause + LEAST < run.left()
        if attempt == ATTEMPTS or not retry:
            raise Failure(f"{where} answered {status}{_meaning(status)}")
        wait(pause or 0.0)
    raise AssertionError("the last attempt returns or raises")


def check(options: Webhook) -> list[str]:
    problems = (
        secret_file_problems(options.secret_file, "secret_file") if options.secret_file else []
    )
    try:
        _parse_url(options.url)
        if options.secret_file and not problems:
            _secret(options)
        if options.ca:
            _ssl_context(options)
    except Failure as failure:
        problems.append(str(failure))
    return problems


def _headers(run: Run, options: Webhook, url: SplitResult) -> Headers:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"forewarn-agent/{forewarn.__version__}",
        "Idempotency-Key": run.key(),
    }
    if url.username is not None:
        headers["Authorization"] = _basic(url)
    if options.secret_file:
        digest = hmac.new(_secret(options), run.body, hashlib.sha256).hexdigest()
        headers["X-Forewarn-Signature"] = f"sha256={digest}"
    configured = {name.lower() for name in options.headers}
    return {k: v for k, v in headers.items() if k.lower() not in configured} | options.headers


def _secret(options: Webhook) -> bytes:
    secret = read_secret(options.secret_file, "secret_file").strip()
    if not secret:
        raise Failure(f"secret_file {options.secret_file} is empty")
    return secret


def _post(
    connection: http.client.HTTPConnection, where: str, path: str, body: bytes, headers: Headers
) -> tuple[int, str]:
    """Return the status and Retry-After."""
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.getheader("Retry-After", "")
    except ssl.SSLCertVerificationError as error:
        raise Failure(f"{where} is not trusted: {error.verify_message}") from None
    except TimeoutError:
        raise Failure(f"{where} does not answer in time") from None
    except http.client.RemoteDisconnected:
        raise Failure(f"{where} closed the connection without a response") from None
    except http.client.HTTPException as error:
        raise Failure(f"{where} did not answer with HTTP: {type(error).__name__}") from None
    except OSError as error:
        raise Failure(f"{where} cannot be reached: {error.strerror or error}") from None
    except UnicodeError:
        raise Failure(f"{where} cannot be reached: the host name is not valid") from None
    finally:
        connection.close()


def _connection(
    url: SplitResult, options: Webhook
) -> tuple[http.client.HTTPConnection, str, Headers]:
    """Return a connection, the target of the request, and additional headers for a proxy."""
    host, proxy = url.hostname or "", _proxy(url)
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    context = _ssl_context(options) if url.scheme == "https" else None
    if proxy is None:
        if context is None:
            return http.client.HTTPConnection(host, url.port), path, {}
        return http.client.HTTPSConnection(host, url.port, context=context), path, {}
    proxy_headers = {"Proxy-Authorization": _basic(proxy)} if proxy.username is not None else {}
    if context is None:
        direct = http.client.HTTPConnection(proxy.hostname or "", proxy.port)
        return direct, _origin(url) + path, proxy_headers
    through = http.client.HTTPSConnection(proxy.hostname or "", proxy.port, context=context)
    through.set_tunnel(host, url.port, proxy_headers)
    return through, path, {}


def _basic(url: SplitResult) -> str:
    pair = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _ssl_context(options: Webhook) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=options.ca or None)
    except ssl.SSLError:
        raise Failure(f"ca {options.ca} contains no certificate") from None
    except OSError as error:
        raise Failure(f"ca {options.ca} cannot be read: {error.strerror}") from None


def _proxy(url: SplitResult) -> SplitResult | None:
    """Return the proxy of the environment, except for addresses of this machine and link."""
    if _is_local(url.hostname or "") or not any(
        name.lower().endswith("_proxy") for name in os.environ
    ):
        return None
    from urllib.request import getproxies_environment, proxy_bypass

    proxy = getproxies_environment().get(url.scheme, "")
    if not proxy or proxy_bypass(url.hostname or ""):
        return None
    return urlsplit(proxy if "//" in proxy else f"http://{proxy}")


def _is_local(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_link_local


def _parse_url(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        if url.hostname and (url.port is None or url.port):
            return url
    except ValueError:
        pass
    raise Failure("url is not a valid URL; expected for example https://example.org/hook")


def _origin(url: SplitResult) -> str:
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"{url.scheme}://{host}" + (f":{url.port}" if url.port else "")


def _seconds(retry_after: str) -> float | None:
    """Return the seconds of a Retry-After; None for a date, which is by another clock."""
    return float(retry_after) if retry_after.isdecimal() and len(retry_after) < 9 else None


def _meaning(status: int) -> str:
    if 300 <= status < 400:
        return ": the hook does not follow redirects; set url to the new address"
    if status in (401, 403):
        return ": it does not accept the credentials"
    return "; another attempt may help" if status == 429 or status >= 500 else ""
