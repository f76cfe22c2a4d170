"""The portal's files: whatever its pages ask for is served, and nothing from elsewhere can run on
them. What the pages show is tried in a browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from posixpath import dirname, join, normpath

import msgspec
import pytest

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.forked_cli import run_script
from helpers.token_api import Answer, Api, token

PORTAL = Path(str(files("forewarn.portal")))
IMPORTED = re.compile(r'^(?:import|export) .*?"(\./[^"]+|\.\./[^"]+)"', re.MULTILINE)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(sockets=True) as service:
        token(service, "alice", Role.ADMIN)
        yield service


def got(service: Service, path: str, **headers: str) -> Answer:
    return Api(service.control_url).call("GET", path, headers=headers)


def test_every_file_that_a_page_needs_is_served_without_a_token(service: Service) -> None:
    page = got(service, "/ui/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    wanted = set(re.findall(rb'"/ui/([^"]+)"', page.body))
    names, seen = {name.decode() for name in wanted}, set[str]()
    while names - seen:
        name = (names - seen).pop()
        seen.add(name)
        file = got(service, f"/ui/{name}")
        assert file.status == 200, name
        for other in IMPORTED.findall(file.body.decode()):
            names.add(normpath(join(dirname(name), other)))
    scripts = {str(path.relative_to(PORTAL)) for path in PORTAL.rglob("*.js")}
    assert scripts <= seen, "a script that no page needs"


def test_every_address_of_a_page_is_the_same_document(service: Service) -> None:
    page = got(service, "/ui/")
    for address in ("/ui/fleet?by=group", "/ui/events/0A", "/ui/machines/a%2Fb", "/ui/x/y.z"):
        assert got(service, address).body == page.body
    root = got(service, "/ui")
    assert (root.status, root.headers["location"]) == (302, "/ui/")
    assert got(service, "/").headers["location"] == "/ui/"


@pytest.mark.parametrize(
    "path",
    [
        *("/ui/nothing.js", "/ui/__init__.py.js", "/ui/../app.js", "/ui/vendor/nothing.css"),
        *("/ui/%2e%2e/app.js", "/ui/pages/..%2f..%2fapp.js"),
    ],
)
def test_files_outside_of_the_portal_are_not_served(service: Service, path: str) -> None:
    assert got(service, path).status == 404
    assert b"package" not in got(service, "/ui/__init__.py").body  # but the document


def test_the_content_security_policy_allows_only_scripts_of_the_portal(service: Service) -> None:
    page = got(service, "/ui/")
    policy = dict(part.strip().partition(" ")[::2] for part in _policy(page).split(";"))
    digest = hashlib.sha256(re.findall(rb'"importmap">(.*?)</script>', page.body, re.DOTALL)[0])
    assert "unsafe" not in _policy(page)
    assert policy["default-src"] == "'none'"
    assert policy["script-src"].startswith("'self' 'sha256-")
    assert digest.digest().hex() == _digest_in(policy["script-src"])
    assert policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    for path in PORTAL.rglob("*"):
        if path.suffix in (".js", ".html", ".css") and path.parent.name != "vendor":
            text = path.read_text()
            assert not re.search(r"https?://|innerHTML|insertAdjacent|eval\(|style=", text), path


def _policy(answer: Answer) -> str:
    return answer.headers["content-security-policy"]


def _digest_in(sources: str) -> str:
    return base64.b64decode(sources.partition("sha256-")[2].rstrip("'")).hex()


def test_a_cached_file_is_not_sent_again(service: Service) -> None:
    first = got(service, "/ui/main.js")
    assert first.headers["cache-control"] == "no-cache"
    again = got(service, "/ui/main.js", **{"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert _policy(again) == _policy(first)  # which the browser takes over
    head = Api(service.control_url).call("HEAD", "/ui/main.js")
    assert (head.status, head.body) == (200, b"")


def test_files_are_compressed_for_callers_that_accept_it(service: Service) -> None:
    plain = got(service, "/ui/main.js")
    packed = got(service, "/ui/main.js", **{"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 2
    assert (plain.headers["vary"], packed.headers["vary"]) == ("Accept-Encoding",) * 2
    page = gzip.decompress(got(service, "/ui/", **{"Accept-Encoding": "gzip"}).body)
    assert page == got(service, "/ui/").body


def test_vendored_libraries_have_the_published_checksums() -> None:
    vendor = PORTAL / "vendor"
    sums = dict(line.split()[::-1] for line in (vendor / "SHA256SUMS").read_text().splitlines())
    scripts = {path.name: path.read_bytes() for path in vendor.glob("*.js")}
    assert {name: hashlib.sha256(body).hexdigest() for name, body in scripts.items()} == sums
    for name in scripts:
        assert f"`{name}`" in (vendor / "README.md").read_text()


def test_the_portal_can_be_switched_off(service: Service) -> None:
    app = service._session.node.control_app
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "_context", msgspec.structs.replace(app._context, portal=False))
        answer = got(service, "/ui/")
        assert (answer.status, "ui = false" in answer.detail) == (404, True)
        assert got(service, "/").headers["location"] == "/docs"


SWITCHED_OFF = """
import asyncio, sys, urllib.error, urllib.request
from forewarn.node import Config, Node
from forewarn.node.config import Address

async def main():
    async with Node(Config(ui=False, control=Address("127.0.0.1", 0))) as node:
        try:
            await asyncio.to_thread(urllib.request.urlopen, f"{node.control_url}/ui/")
        except urllib.error.HTTPError as error:
            sys.exit(error.code != 404 or "forewarn.portal" in sys.modules)

asyncio.run(main())
sys.exit("the portal was served")
"""


def test_a_service_without_the_portal_reads_nothing_of_it() -> None:
    assert run_script(SWITCHED_OFF).returncode == 0
