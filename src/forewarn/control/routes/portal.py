"""The portal's files in the control API: a page that shows the fleet in a browser.

They are public, like the page about the API: they contain no data. Every path under `/ui/` that is
no file is answered with the same document, which then shows what its address names.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Any

from litestar import Request, Response, get
from litestar.response import Redirect

from forewarn.control.http.compression import accepts_gzip
from forewarn.control.http.context import context
from forewarn.control.http.errors import RefusedError
from forewarn.control.http.operation import PUBLIC
from forewarn.control.http.preconditions import bytes_tag
from forewarn.control.http.responses import response_headers
from forewarn.control.routes.docs import REVALIDATE
from forewarn.core.refusal import unknown

PACKAGE = "forewarn.portal"
DOCUMENT = "index.html"
OFF = "the portal is switched off (ui = false)"
MEDIA_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}

_INLINE = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)


@get(["/ui", "/ui/{path:path}"], sync_to_thread=False, opt=PUBLIC)
def portal(request: Request[Any, Any, Any]) -> Response[Any]:
    if not context().portal:
        raise RefusedError(unknown(OFF))
    if request.scope["raw_path"] == b"/ui":
        return Redirect("/ui/")
    name = request.scope["path"].removeprefix("/ui").removeprefix("/")
    found = _files().get(name)
    if found is None and PurePosixPath(name).suffix in MEDIA_TYPES:
        raise RefusedError(unknown("the portal has no such file"))
    content = found or _files()[DOCUMENT]
    media_type = MEDIA_TYPES[PurePosixPath(name if found else DOCUMENT).suffix]
    headers = response_headers(request.scope)
    headers["Content-Security-Policy"] = _policy()
    headers["ETag"], headers["Cache-Control"] = bytes_tag(content), REVALIDATE
    headers["Vary"] = "Accept-Encoding"
    if request.method == "GET" and accepts_gzip(request.scope):
        headers["Content-Encoding"] = "gzip"
        content = _compressed(content)
    return Response(content, media_type=media_type)


@cache
def _files() -> dict[str, bytes]:
    """Return all files that browsers may ask for, by their path under /ui/."""

    def walk(directory: Traversable, prefix: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for item in directory.iterdir():
            if item.is_dir():
                found |= walk(item, f"{prefix}{item.name}/")
            elif PurePosixPath(item.name).suffix in MEDIA_TYPES:
                found[prefix + item.name] = item.read_bytes()
        return found

    return walk(files(PACKAGE), "")


@cache
def _compressed(content: bytes) -> bytes:
    """Return a file as gzip. It is public, so that its length tells nobody anything."""
    return gzip.compress(content, mtime=0)


@cache
def _policy() -> str:
    """Return the Content-Security-Policy: nothing but the portal's own files runs or is loaded, and
    no script can write HTML."""
    inline = _INLINE.findall(_files()[DOCUMENT])
    hashes = [base64.b64encode(hashlib.sha256(text).digest()).decode() for text in inline]
    scripts = "".join(f" 'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src 'self'{scripts}; style-src 'self'; img-src 'self';"
        " connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
