"""An issuer of tokens on loopback whose keys and answers a test decides: what a real one never
does, or does only once a year. Browsers can log in at it, as whom the test says."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from forewarn.core.access import Role
from forewarn.service.access.oidc import AccessRule, Oidc
from forewarn.support import guard

RULES = (
    AccessRule(member_of="fleet-admins", role=Role.ADMIN),
    AccessRule(member_of="watchers", role=Role.VIEWER),
    AccessRule(member_of="web-team", role=Role.TENANT, groups=("web",)),
    AccessRule(member_of="vault-team", role=Role.TENANT, label="tier=vault"),
)


class Key:
    """A key pair, as the issuer publishes it and as it signs with it."""

    def __init__(self, id: str | None = "one", kind: str = "RS256", **published: Any) -> None:
        self.id, self.kind = id, kind
        self.private: Any
        if kind.startswith("ES"):
            self.private = ec.generate_private_key(ec.SECP256R1())
        elif kind == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = rsa.generate_private_key(65537, 2048)
        algorithm: Any = jwt.get_algorithm_by_name(kind)
        public = json.loads(algorithm.to_jwk(self.private.public_key()))
        self.jwk = {**public, **({"kid": id} if id else {}), **published}

    @property
    def pem(self) -> bytes:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        public = self.private.public_key()
        return bytes(public.public_bytes(serialization.Encoding.PEM, form))


@cache
def first_key() -> Key:
    return Key()


class Issuer:
    def __init__(self, url: str) -> None:
        self.url = url
        self.keys = [first_key()]
        self.fetches = 0  # of the keys
        self.broken = ""  # what is answered instead of the keys
        self.status = 200
        self.calls_itself = url
        self.secret = ""  # of the client, if it needs one
        self.denies = False  # does the person not log in?
        self.logs_in: dict[str, Any] = {}  # claims of the person who logs in
        self.asked: dict[str, str] = {}  # the last query of a browser
        self._codes: dict[str, dict[str, str]] = {}  # by code: the query that it was issued for

    def config(self, **changed: Any) -> Oidc:
        fields: dict[str, Any] = {"issuer": self.url, "audience": "forewarn", "access": RULES}
        return Oidc(**fields | {"name_claim": "email", **changed})

    def claims(self, **changed: Any) -> dict[str, Any]:
        now = guard.wall_us() // 1_000_000
        claims = {
            "iss": self.url,
            "aud": "forewarn",
            "sub": "4711",
            "email": "ann@example.net",
            "groups": ["fleet-admins"],
            "iat": now,
            "exp": now + 600,
        }
        return {name: value for name, value in (claims | changed).items() if value is not None}

    def authorize(self, query: dict[str, str]) -> str:
        """Return where a browser is sent back to."""
        self.asked = query
        answer = {"state": query["state"], "error": "access_denied"}
        if not self.denies:
            code = secrets.token_urlsafe()
            self._codes[code] = query
            answer = {"state": query["state"], "code": code}
        return f"{query['redirect_uri']}?{urlencode(answer)}"

    def exchange(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, str]]:
        """Return the answer to a code, which is valid once, and only with its verifier."""
        asked = self._codes.pop(form.get("code", ""), None)
        pair = base64.b64encode(f"{form.get('client_id')}:{self.secret}".encode()).decode()
        if self.secret and authorization != f"Basic {pair}":
            return 401, {"error": "invalid_client"}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            asked is None
            or form.get("grant_type") != "authorization_code"
            or asked["code_challenge_method"] != "S256"
            or asked["code_challenge"] != _base64(digest)
            or any(asked[name] != form.get(name) for name in ("client_id", "redirect_uri"))
        ):
            return 400, {"error": "invalid_grant"}
        claims = {"aud": asked["client_id"], "nonce": asked["nonce"], **self.logs_in}
        return 200, {"id_token": self.token(**claims), "token_type": "Bearer"}

    def token(self, key: Key | None = None, header: Any = None, **changed: Any) -> str:
        key = key or self.keys[0]
        headers = {"kid": key.id} if key.id else {}
        return jwt.encode(
            self.claims(**changed), key.private, key.kind, headers=headers | (header or {})
        )


def signed_by_hand(header: dict[str, Any], claims: dict[str, Any], secret: bytes | None) -> str:
    """A token that no library would make; without a secret, it has no signature."""
    parts = [_base64(json.dumps(part).encode()) for part in (header, claims)]
    signature = hmac.digest(secret, ".".join(parts).encode(), "sha256") if secret else b""
    return ".".join([*parts, _base64(signature)])


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@contextmanager
def issuer() -> Iterator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            document: object = {
                "issuer": made.calls_itself,
                "jwks_uri": f"{made.url}/keys",
                "authorization_endpoint": f"{made.url}/authorize",
                "token_endpoint": f"{made.url}/token",
            }
            if path == "/authorize":
                self.send_response(302)
                self.send_header("Location", made.authorize(dict(parse_qsl(query))))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if path == "/keys":
                made.fetches += 1
                document = {"keys": [key.jwk for key in made.keys]}
            body = (made.broken or json.dumps(document)).encode()
            self.send_response(made.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            form = dict(parse_qsl(self.rfile.read(length).decode()))
            status, answer = made.exchange(form, self.headers.get("Authorization", ""))
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Issuer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
