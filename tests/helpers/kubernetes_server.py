"""An API server for tests, the fake one or the real one, behind a proxy that can look at each
request of the hook, answer in the server's place, and end the hook before or after it.

The real one is run if `TEST_KUBE_APISERVER` names it, as `make test-kubernetes` does, with an etcd
of its own, RBAC, and nothing else: no controllers, no kubelet.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from forewarn.node.config import Tls
from helpers import fake_kubernetes
from helpers.certificates import Authority
from helpers.fake_kubernetes import ADMIN, Refusal, ResourcePath
from helpers.free_ports import free_port
from helpers.kubernetes_cluster import Cluster
from helpers.waiting import LIMIT, until

REAL = os.environ.get("TEST_KUBE_APISERVER", "")
_PASSED_ON = ("Authorization", "Content-Type", "Accept", "User-Agent")
Look = Callable[[str, ResourcePath], Refusal | None]


class Proxy(ThreadingHTTPServer):
    """What the hook takes for the API server."""

    daemon_threads = True

    def __init__(
        self, tls: Tls, url: str, cluster: Cluster, fake: fake_kubernetes.Server | None
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.cluster, self.fake = cluster, fake
        self.used: set[tuple[str, str, str]] = set()  # verb, resource and group
        self.statuses: set[int] = set()
        self.arrived: Callable[[], None] = lambda: None
        self.before: Look = lambda *_: None  # may answer instead
        self.after: Callable[[], None] = lambda: None  # the server has answered, nobody knows yet
        self._tls, self._upstream = tls, url
        self.upstream = urlsplit(url)
        self.url = f"https://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def another(self) -> Proxy:
        """Another one before the same server."""
        return Proxy(self._tls, self._upstream, self.cluster, self.fake)

    def end(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Proxy

    def do_GET(self) -> None:
        proxy = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy.arrived()
        status, headers, content = 0, {}, b""
        target = urlsplit(self.path).path
        if target != "/version":
            path = ResourcePath(target)
            verb = path.verb(self.command)
            if path.resource != "selfsubjectaccessreviews":
                proxy.used.add((verb, path.full, path.group))
            if (refusal := proxy.before(verb, path)) is not None:
                status, headers, content = refusal.code, refusal.headers, refusal.body
        if not status:
            status, headers, content = self._ask(body)
            proxy.after()
        proxy.statuses.add(status)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_PATCH = do_POST = do_DELETE = do_GET  # noqa: N815 - the base class wants these names

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        upstream, context = self.server.upstream, self.server.cluster.context
        line = http.client.HTTPSConnection(upstream.hostname or "", upstream.port, context=context)
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        try:
            line.request(self.command, self.path, body or None, headers)
            answer = line.getresponse()
            content = answer.read()
        finally:
            line.close()
        kept = ("Content-Type", "Retry-After")
        return (
            answer.status,
            {name: answer.headers[name] for name in kept if name in answer.headers},
            content,
        )

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(directory: Path) -> Iterator[Proxy]:
    """An API server with an empty cluster."""
    authority = Authority(directory)
    tls = authority.issue("127.0.0.1")
    with ExitStack() as stack:
        fake = None
        if REAL:
            url, compact = stack.enter_context(_real(directory, tls, authority.path))
        else:
            fake = fake_kubernetes.Server(tls)
            stack.callback(fake.end)
            url, compact = fake.url, fake.compact
        cluster = Cluster(url, authority.path, ADMIN, directory, compact)
        stack.callback(cluster.close)
        proxy = Proxy(tls, url, cluster, fake)
        stack.callback(proxy.end)
        cluster.url = proxy.url
        yield proxy


@contextmanager
def _real(directory: Path, tls: Tls, ca: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """etcd and kube-apiserver, whose logs are in the directory, and what compacts etcd."""
    etcd, peers, port = free_port(), free_port(), free_port()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    accounts = directory / "accounts.key"
    accounts.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    tokens = directory / "tokens.csv"
    tokens.write_text(f'{ADMIN},admin,1,"system:masters"\n')
    etcd_argv = [
        "etcd",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{etcd}",
        f"--advertise-client-urls=http://127.0.0.1:{etcd}",
        f"--listen-peer-urls=http://127.0.0.1:{peers}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
        f"--initial-cluster=default=http://127.0.0.1:{peers}",
        "--unsafe-no-fsync",
    ]
    server_argv = [
        REAL,
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={tls.certificate}",
        f"--tls-private-key-file={tls.key}",
        f"--cert-dir={directory / 'certificates'}",
        f"--service-account-key-file={accounts}",
        f"--service-account-signing-key-file={accounts}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--disable-admission-plugins=ServiceAccount,Priority,TaintNodesByCondition",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
        "--enable-priority-and-fairness=false",
    ]
    environment = {**os.environ, "ETCD_UNSUPPORTED_ARCH": "arm64"}
    with ExitStack() as stack:
        for argv in (etcd_argv, server_argv):
            log = stack.enter_context((directory / f"{Path(argv[0]).name[:14]}.log").open("wb"))
            process = subprocess.Popen(argv, stdout=log, stderr=log, env=environment)
            stack.callback(process.wait)
            stack.callback(process.kill)
        context = ssl.create_default_context(cafile=str(ca))

        names = "/api/v1/namespaces"  # which it creates when it is ready

        def ready() -> bool:
            line = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=LIMIT)
            headers = {"Authorization": f"Bearer {ADMIN}"}
            try:
                for path in ("/readyz", f"{names}/default", f"{names}/kube-system"):
                    line.request("GET", path, headers=headers)
                    answer = line.getresponse()
                    answer.read()
                    if answer.status != 200:
                        return False
                return True
            except OSError:
                return False
            finally:
                line.close()

        def compact() -> None:
            revision = json.loads(_etcd(etcd, "range", {"key": "Lw=="}))["header"]["revision"]
            _etcd(etcd, "compaction", {"revision": revision})

        until(ready, f"an API server; its log is in {directory}")
        yield f"https://127.0.0.1:{port}", compact


def _etcd(port: int, verb: str, body: dict[str, str]) -> bytes:
    line = http.client.HTTPConnection("127.0.0.1", port)
    try:
        line.request("POST", f"/v3/kv/{verb}", json.dumps(body))
        answer = line.getresponse()
        content = answer.read()
    finally:
        line.close()
    assert answer.status == 200, content
    return content
