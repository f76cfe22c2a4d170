"""What is put to both nodes: every way to poll that clients are known for, and every way to be
misunderstood that smugglers are. Written by hand; `corpus/` holds what the fuzzer has found.

A case here is what is said on one line, in the segments it is said in. `variants` says the same
in other pieces, and between good polls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from differential.case import Case
from differential.histories import event_id
from forewarn.wire.document import etag

PATH = b"/metadata/scheduledevents"
NEWEST = b"2020-07-01"
VERSIONS = (
    b"2017-03-01",
    b"2017-08-01",
    b"2017-11-01",
    b"2019-01-01",
    b"2019-04-01",
    b"2019-08-01",
    NEWEST,
)
TAG = etag(b'{"DocumentIncarnation":1,"Events":[]}').encode()  # of the quiet machine's document
SHORT = 200  # bytes up to which a case is also said in single ones


def head(
    *headers: bytes,
    verb: bytes = b"GET",
    target: bytes = PATH + b"?api-version=" + NEWEST,
    version: bytes = b"HTTP/1.1",
    metadata: bytes = b"Metadata: true",
    host: bytes = b"Host: 169.254.169.254",
) -> bytes:
    lines = [verb + b" " + target + b" " + version, host, metadata, *headers]
    return b"\r\n".join([*(line for line in lines if line), b"", b""])


def get(target: bytes, *headers: bytes) -> bytes:
    return head(*headers, target=target)


def post(body: bytes, *headers: bytes, length: int | None = None) -> bytes:
    size = b"Content-Length: %d" % (len(body) if length is None else length)
    return head(*headers, size, verb=b"POST") + body


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def padded(size: int, name: bytes = b"X-Padding") -> bytes:
    """A good poll of so many bytes."""
    bare = len(head(name + b": "))
    return head(name + b": " + b"a" * (size - bare))


POLL = head()
LAST = head(b"Connection: close")
APPROVAL = b'{"StartRequests":[{"EventId":"%s"}]}' % event_id(2).encode()
TE = b"Transfer-Encoding: chunked"

# One whole good poll in one segment: what the Front is for.
POLLS: dict[str, bytes] = {
    "poll": POLL,
    **{f"version {v.decode()}": get(PATH + b"?api-version=" + v) for v in VERSIONS},
    "from curl": head(b"User-Agent: curl/8.5.0", b"Accept: */*", metadata=b"Metadata:true"),
    "from python": head(
        b"User-Agent: python-requests/2.32.3",
        b"Accept-Encoding: gzip, deflate",
        b"Accept: */*",
        b"Connection: keep-alive",
    ),
    "tag: never given": head(b"If-None-Match: 0"),
    "tag: the same": head(b"If-None-Match: " + TAG),
    "tag: bare": head(b"If-None-Match: " + TAG.strip(b'"')),
    "tag: weak": head(b"If-None-Match: W/" + TAG),
    "tag: in a list": head(b'If-None-Match: "x", ' + TAG),
    "tag: in a list of weak ones": head(b'If-None-Match: W/"x",W/' + TAG),
    "tag: star": head(b"If-None-Match: *"),
    "tag: empty": head(b"If-None-Match:"),
    "keep-alive": head(b"Connection: keep-alive"),
    "host: none": head(host=b""),
    "an unknown header": head(b"X-Something: else"),
    "upper-case path": get(PATH.upper() + b"?api-version=" + NEWEST),
    "mixed-case path": get(b"/metadata/scheduledEvents?api-version=" + NEWEST),
    "unknown parameter": get(PATH + b"?api-version=" + NEWEST + b"&x=y"),
    "lower-case names": POLL.replace(b"Host", b"host").replace(b"Metadata:", b"metadata:"),
}

TARGETS: dict[str, bytes] = {
    "trailing slash": PATH + b"/?api-version=" + NEWEST,
    "two trailing slashes": PATH + b"//?api-version=" + NEWEST,
    "two leading slashes": b"/" + PATH + b"?api-version=" + NEWEST,
    "percent-encoded path": b"/metadata/scheduled%65vents?api-version=" + NEWEST,
    "percent-encoded slash": b"/metadata%2fscheduledevents?api-version=" + NEWEST,
    "percent-encoded query": PATH + b"?api%2Dversion=2020%2D07%2D01",
    "percent-encoded nul": PATH + b"%00?api-version=" + NEWEST,
    "bad percent": PATH + b"%zz?api-version=%",
    "dots": b"/metadata/x/../scheduledevents?api-version=" + NEWEST,
    "absolute": b"http://169.254.169.254" + PATH + b"?api-version=" + NEWEST,
    "absolute without path": b"http://169.254.169.254?api-version=" + NEWEST,
    "absolute with a bad port": b"http://x:99999" + PATH + b"?api-version=" + NEWEST,
    "authority": b"169.254.169.254:80",
    "star": b"*",
    "no slash": b"metadata/scheduledevents?api-version=" + NEWEST,
    "fragment": PATH + b"?api-version=" + NEWEST + b"#top",
    "fragment before query": PATH + b"#?api-version=" + NEWEST,
    "no query": PATH,
    "empty query": PATH + b"?",
    "empty version": PATH + b"?api-version=",
    "unknown version": PATH + b"?api-version=2099-01-01",
    "latest": PATH + b"?api-version=latest",
    "version twice": PATH + b"?api-version=2020-07-01&api-version=2020-07-01",
    "version twice, differently": PATH + b"?api-version=2017-03-01&api-version=2020-07-01",
    "another twice": PATH + b"?a=1&api-version=2020-07-01&a=1",
    "upper-case parameter": PATH + b"?API-VERSION=2020-07-01",
    "parameter with a plus": PATH + b"?api-version=2020-07-01+",
    "semicolon": PATH + b"?x=y;api-version=2020-07-01",
    "two question marks": PATH + b"??api-version=2020-07-01",
    "question mark in a value": PATH + b"?x=?&api-version=2020-07-01",
    "many ampersands": PATH + b"?&&api-version=2020-07-01&&",
    "high bytes": PATH + b"?\xff=\xfe&api-version=" + NEWEST,
    "high bytes in the path": b"/metadata/scheduled\xffevents?api-version=" + NEWEST,
    "tab in the target": PATH + b"\t?api-version=" + NEWEST,
    "nul in the target": PATH + b"\x00?api-version=" + NEWEST,
    "unknown path": b"/nothing?api-version=" + NEWEST,
    "root": b"/",
    "below": PATH + b"/x?api-version=" + NEWEST,
    "instance": b"/metadata/instance?api-version=2021-02-01",
    "a leaf": b"/metadata/instance/compute/name?api-version=2021-02-01&format=text",
    "versions": b"/metadata/versions",
}

HEADERS: dict[str, tuple[bytes, ...]] = {
    "close": (b"Connection: close",),
    "close, upper case": (b"CONNECTION: CLOSE",),
    "close in a list": (b"Connection: keep-alive, close",),
    "close and keep-alive apart": (b"Connection: close", b"Connection: keep-alive"),
    "keep-alive and close apart": (b"Connection: keep-alive", b"Connection: close"),
    "an odd token": (b"Connection: x-odd",),
    "nearly close": (b"Connection: closed",),
    "close in quotes": (b'Connection: "close"',),
    "empty connection": (b"Connection:",),
    "connection of commas": (b"Connection: ,,close,",),
    "close with a semicolon": (b"Connection: close;q=0",),
    "te in connection": (b"Connection: TE", b"TE: trailers"),
    "proxy-connection": (b"Proxy-Connection: close",),
    "forwarded": (b"X-Forwarded-For: 10.0.0.1",),
    "forwarded, empty": (b"X-Forwarded-For:",),
    "forwarded, lower case": (b"x-forwarded-for: 10.0.0.1",),
    "metadata twice": (b"Metadata: true",),
    "metadata twice, differently": (b"Metadata: false",),
    "origin": (b"Origin: http://x",),
    "two hosts": (b"Host: other",),
    "two tags": (b'If-None-Match: "x"', b"If-None-Match: " + TAG),
    "tag: spaces": (b"If-None-Match:  \t " + TAG + b" \t",),
    "tag: lower-case weak": (b"If-None-Match: w/" + TAG,),
    "tag: star in a list": (b'If-None-Match: "x", *',),
    "tag: open quote": (b"If-None-Match: " + TAG[:-1],),
    "tag: high bytes": (b"If-None-Match: \xff, " + TAG,),
    "modified since": (b"If-Modified-Since: Fri, 15 Jan 2027 08:00:00 GMT",),
    "a range": (b"Range: bytes=0-1",),
    "no value": (b"X-Empty:",),
    "a value of spaces": (b"X-Empty: \t  ",),
    "spaces around a value": (b"X-Spaces: \t a \t ",),
    "no colon": (b"X-Colon",),
    "space before the colon": (b"X-Space : a",),
    "tab before the colon": (b"X-Tab\t: a",),
    "space before the name": (b" X-Lead: a",),
    "space in the name": (b"X Space: a",),
    "no name": (b": a",),
    "a colon in the value": (b"X-Colon: a: b",),
    "a fold": (b"X-Fold: a\r\n b",),
    "a fold with a tab": (b"X-Fold: a\r\n\tb",),
    "a fold of nothing": (b"X-Fold: a\r\n ",),
    "a folded tag": (b"If-None-Match:\r\n " + TAG,),
    "a folded close": (b"Connection:\r\n close",),
    "nul in a value": (b"X-Nul: a\x00b",),
    "nul in a name": (b"X-N\x00: a",),
    "high bytes in a value": (b"X-High: \xc3\xbc\xff",),
    "high bytes in a name": (b"X-\xfc: a",),
    "control bytes in a value": (b"X-Control: a\x01\x7f\x1b",),
    "vertical tab around a value": (b"X-Tab: \x0ba\x0c",),
    "bare cr in a value": (b"X-Cr: a\rb",),
    "bare cr before the end": (b"X-Cr: a\r",),
    "bare cr that hides a header": (b"X-Cr: a\rTransfer-Encoding: chunked",),
    "bare lf that hides a header": (b"X-Lf: a\nX-Forwarded-For: b",),
    "bare lf that hides a length": (b"X-Lf: a\nContent-Length: 5",),
    "length 0": (b"Content-Length: 0",),
    "length 00": (b"Content-Length: 00",),
    "length +0": (b"Content-Length: +0",),
    "length -0": (b"Content-Length: -0",),
    "length 0x0": (b"Content-Length: 0x0",),
    "length 0, 0": (b"Content-Length: 0, 0",),
    "length 0 twice": (b"Content-Length: 0", b"Content-Length: 0"),
    "length empty": (b"Content-Length:",),
    "length of spaces": (b"Content-Length:   ",),
    "length huge": (b"Content-Length: 18446744073709551616",),
    "length with an underscore": (b"Content_Length: 5",),
    "length of another thing": (b"X-Content-Length: 5",),
    "expect": (b"Expect: 100-continue",),
    "expect, upper case": (b"EXPECT: 100-CONTINUE",),
    "expect something else": (b"Expect: a miracle",),
    "upgrade: websocket": (
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ),
    "upgrade: h2c": (
        b"Connection: Upgrade, HTTP2-Settings",
        b"Upgrade: h2c",
        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    ),
    "upgrade without connection": (b"Upgrade: h2c",),
    "connection: upgrade alone": (b"Connection: Upgrade",),
    "upgrade and close": (b"Connection: upgrade, close", b"Upgrade: h2c"),
}

FRAMED: dict[str, tuple[bytes, ...]] = {
    "body": (head(b"Content-Length: 5") + b"hello",),
    "body apart": (head(b"Content-Length: 5"), b"hello"),
    "body that is a poll": (head(b"Content-Length: %d" % len(POLL)) + POLL,),
    "body that is a poll, apart": (head(b"Content-Length: %d" % len(POLL)), POLL),
    "body shorter than said": (head(b"Content-Length: 500") + POLL,),
    "body longer than said": (head(b"Content-Length: 5") + POLL,),
    "two lengths": (head(b"Content-Length: 5", b"Content-Length: 6") + b"hello!",),
    "chunked": (head(TE) + b"0\r\n\r\n",),
    "chunked, a poll": (head(TE) + chunked(POLL),),
    "chunked, a poll, apart": (head(TE), chunked(POLL)),
    "chunked, in pieces": (head(TE), b"%x\r\n" % len(POLL), POLL, b"\r\n0\r\n\r\n"),
    "chunked, no chunks but a poll": (head(TE), POLL),
    "chunked, trailers": (head(TE) + b"0\r\nX-Forwarded-For: a\r\n\r\n",),
    "chunked, extension": (head(TE) + b"5;a=b\r\nhello\r\n0\r\n\r\n",),
    "chunked, bare lf": (head(TE) + b"5\nhello\n0\n\n",),
    "chunked, bad size": (head(TE) + b"zz\r\n",),
    "cl.te": (head(b"Content-Length: 6", TE) + b"0\r\n\r\nG",),
    "cl.te, a poll": (head(b"Content-Length: %d" % (len(POLL) + 5), TE) + b"0\r\n\r\n" + POLL,),
    "te.cl": (head(TE, b"Content-Length: 4") + chunked(POLL),),
    "te.cl of nothing": (head(TE, b"Content-Length: 0") + chunked(POLL),),
    "cl 0 and te": (head(b"Content-Length: 0", TE), POLL),
    **{
        f"te.te {odd!r}": (head(odd, b"Content-Length: 4") + chunked(b"abc"), POLL)
        for odd in (
            b"Transfer-Encoding: xchunked",
            b"Transfer-Encoding : chunked",
            b"Transfer-Encoding:\tchunked",
            b"Transfer-Encoding: \x0bchunked",
            b" Transfer-Encoding: chunked",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
            b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
            b"Transfer-Encoding: identity, chunked",
            b"Transfer-Encoding: chunked, identity",
            b'Transfer-Encoding: "chunked"',
            b"Transfer-Encoding: CHUNKED",
            b"Transfer-Encoding:\r\n chunked",
            b"Transfer-Encoding\x00: chunked",
            b"X: a\nTransfer-Encoding: chunked",
            b"X: a\rTransfer-Encoding: chunked",
            b"Transfer_Encoding: chunked",
            b"TRANSFER-ENCODING: chunked",
        )
    },
    **{
        f"te alone {odd!r}": (head(odd), POLL)
        for odd in (
            b"Transfer-Encoding: identity",
            b"Transfer-Encoding: gzip",
            b"Transfer-Encoding:",
            b"Transfer-Encoding: chunked, chunked",
            b"Content-Encoding: gzip",
            b"TE: chunked",
        )
    },
    "approval": (post(APPROVAL), POLL),
    "approval and a poll at once": (post(APPROVAL) + POLL,),
    "approval, then its body": (post(APPROVAL)[: -len(APPROVAL)], APPROVAL, POLL),
    "approval, chunked": (head(TE, verb=b"POST") + chunked(APPROVAL), POLL),
    "approval of nothing": (post(b'{"StartRequests":[]}'), POLL),
    "approval of what was never listed": (post(APPROVAL.replace(b"0003-", b"9999-")), POLL),
    "approval that is not json": (post(b"{"), POLL),
    "approval without a length": (head(verb=b"POST") + APPROVAL, POLL),
    "approval with a tag": (post(APPROVAL, b"If-None-Match: *"), POLL),
    "approval with close": (post(APPROVAL, b"Connection: close") + POLL, POLL),
    "post of a poll": (post(POLL),),
    "post of a poll, apart": (post(POLL)[: -len(POLL)], POLL),
    "post of a poll, apart, and a poll": (post(POLL)[: -len(POLL)], POLL, POLL),
    "post of two polls, apart": (post(POLL + POLL)[: -2 * len(POLL)], POLL, POLL, POLL),
    "post of a poll, one byte more": (post(POLL, length=len(POLL) + 1), POLL),
    "post of a poll, one byte less": (post(POLL, length=len(POLL) - 1), POLL),
    "post of a poll, no length": (post(POLL, length=0), POLL),
    "post of a poll, chunked": (head(TE, verb=b"POST"), chunked(POLL), POLL),
    "post of a poll in one chunk of its own": (
        head(TE, verb=b"POST"),
        b"%x\r\n" % len(POLL),
        POLL,
        b"\r\n0\r\n\r\n",
        POLL,
    ),
    "post of a poll, refused early": (
        post(POLL, b"X-Forwarded-For: a")[: -len(POLL)],
        POLL,
        POLL,
    ),
    "put of a poll, apart": (
        head(b"Content-Length: %d" % len(POLL), verb=b"PUT"),
        POLL,
        POLL,
    ),
    "an unknown verb with a poll for a body": (
        head(b"Content-Length: %d" % len(POLL), verb=b"BREW"),
        POLL,
        POLL,
    ),
    "post too large": (post(b"", length=70_000), b"a" * 100),
    "post, expect": (
        head(b"Expect: 100-continue", b"Content-Length: %d" % len(APPROVAL), verb=b"POST"),
        APPROVAL,
        POLL,
    ),
    "post, expect, a poll": (
        head(b"Expect: 100-continue", b"Content-Length: %d" % len(POLL), verb=b"POST"),
        POLL,
        POLL,
    ),
    "get, expect, body": (head(b"Expect: 100-continue", b"Content-Length: 5"), b"hello", POLL),
    "chunked, large, forwarded in a trailer": (
        head(TE) + b"bb8\r\n" + b"a" * 3_000 + b"\r\n0\r\nX-Forwarded-For: a\r\n\r\n",
        POLL,
    ),
    "chunked, large, metadata in a trailer": (
        head(TE, metadata=b"") + b"bb8\r\n" + b"a" * 3_000 + b"\r\n0\r\nMetadata: true\r\n\r\n",
        POLL,
    ),
    "large body": (head(b"Content-Length: 3000") + b"a" * 3_000, POLL),
    "large body of polls": (head(b"Content-Length: %d" % (50 * len(POLL))) + POLL * 51,),
    "large post of polls": (post(POLL * 50) + POLL, POLL),
    "large approval": (post(b" " * 3_000 + APPROVAL) + POLL, POLL),
    "large approval, expect": (post(b" " * 3_000 + APPROVAL, b"Expect: 100-continue"), POLL),
    "post of what is too large": (post(b"a" * 70_000), POLL),
    "post of what is too large, chunked": (head(TE, verb=b"POST") + chunked(b"a" * 70_000), POLL),
    "upgrade with a large body": (
        head(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: 3000") + b"a" * 3_000,
        POLL,
    ),
    "upgrade with a body that is a poll": (
        head(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: %d" % len(POLL)),
        POLL,
        POLL,
    ),
    "upgrade, then a poll": (head(b"Connection: Upgrade", b"Upgrade: h2c"), POLL),
    "upgrade, then frames": (
        head(b"Connection: Upgrade", b"Upgrade: websocket"),
        b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51",
    ),
}

LINES: dict[str, bytes] = {
    "http/1.0": head(version=b"HTTP/1.0"),
    "http/1.0, keep-alive": head(b"Connection: keep-alive", version=b"HTTP/1.0"),
    "http/1.0, no headers": b"GET " + PATH + b" HTTP/1.0\r\n\r\n",
    "http/1.2": head(version=b"HTTP/1.2"),
    "http/2.0": head(version=b"HTTP/2.0"),
    "http/0.9": b"GET " + PATH + b"\r\n\r\n",
    "http/01.1": head(version=b"HTTP/01.1"),
    "http/1.10": head(version=b"HTTP/1.10"),
    "http/1,1": head(version=b"HTTP/1,1"),
    "lower-case http": head(version=b"http/1.1"),
    "rtsp": head(version=b"RTSP/1.0"),
    "no version": head(version=b""),
    "space behind the version": head(version=b"HTTP/1.1 "),
    "tab before the version": POLL.replace(b" HTTP", b"\tHTTP"),
    "two spaces before the version": POLL.replace(b" HTTP", b"  HTTP"),
    "two spaces behind the verb": POLL.replace(b"GET ", b"GET  "),
    "tab behind the verb": POLL.replace(b"GET ", b"GET\t"),
    "space before the verb": b" " + POLL,
    **{
        f"verb {verb.decode()}": head(verb=verb)
        for verb in (
            *(b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"PATCH", b"TRACE", b"CONNECT", b"PRI"),
            *(b"get", b"Get", b"GETS", b"GE", b"G", b"BREW", b"M-SEARCH", b"QUERY", b"SOURCE"),
        )
    },
    "head, http/1.0": head(verb=b"HEAD", version=b"HTTP/1.0"),
    "a leading line": b"\r\n" + POLL,
    "two leading lines": b"\r\n\r\n" + POLL,
    "a leading lf": b"\n" + POLL,
    "a leading cr": b"\r" + POLL,
    "a leading nul": b"\x00" + POLL,
    "a leading bom": b"\xef\xbb\xbf" + POLL,
    "a trailing line": POLL + b"\r\n",
    "a trailing lf": POLL + b"\n",
    "a trailing cr": POLL + b"\r",
    "a trailing nul": POLL + b"\x00",
    "a trailing space": POLL + b" ",
    "bare lf": POLL.replace(b"\r\n", b"\n"),
    "bare lf at the end": POLL[:-4] + b"\n\n",
    "one bare lf at the end": POLL[:-2] + b"\n",
    "bare lf in the request line": POLL.replace(b"\r\n", b"\n", 1),
    "bare cr": POLL.replace(b"\r\n", b"\r"),
    "cr cr lf": POLL.replace(b"\r\n", b"\r\r\n"),
    "lf cr": POLL.replace(b"\r\n", b"\n\r"),
    "metadata: TRUE": head(metadata=b"Metadata: TRUE"),
    "metadata: upper-case name": head(metadata=b"METADATA: true"),
    "metadata: no space": head(metadata=b"Metadata:true"),
    "metadata: tabs": head(metadata=b"Metadata:\t\ttrue\t "),
    "metadata: false": head(metadata=b"Metadata: false"),
    "metadata: empty": head(metadata=b"Metadata:"),
    "metadata: missing": head(metadata=b""),
    "metadata: quoted": head(metadata=b'Metadata: "true"'),
    "metadata: folded": head(metadata=b"Metadata:\r\n true"),
    "metadata: true, true": head(metadata=b"Metadata: true, true"),
    "metadata: vertical tab": head(metadata=b"Metadata: \x0btrue"),
    "metadata: high space": head(metadata=b"Metadata: \xa0true"),
    "metadata: missing, preview": head(metadata=b"", target=PATH + b"?api-version=2017-03-01"),
    "host: empty": head(host=b"Host:"),
    "host: odd": head(host=b"Host: a b@c/d"),
    "no end": POLL[:-2],
    "a cr short": POLL[:-1],
    "no headers": b"GET " + PATH + b"?api-version=" + NEWEST + b" HTTP/1.1\r\n\r\n",
    "only a line": b"GET " + PATH + b" HTTP/1.1\r\n",
    "http/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "tls hello": bytes.fromhex("16030100a5010000a1030300") + b"\x00" * 32,
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "proxy line": b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + POLL,
    "proxy line, binary": b"\r\n\r\n\x00\r\nQUIT\n\x20\x11\x00\x00" + POLL,
    "noise": bytes(range(256)),
    "nothing": b"",
}

MANY: dict[str, tuple[bytes, ...]] = {
    "two polls": (POLL + POLL,),
    "three polls": (POLL + POLLS["tag: the same"] + POLL,),
    "fifty polls": (POLL * 50,),
    **{f"{count} polls": (POLL * count,) for count in (127, 129, 150, 200)},
    "polls and garbage": (POLL * 40 + b"\x00",),
    "polls and a part": (POLL * 40 + POLL[:50], POLL[50:] + POLL),
    "polls and close": (POLL * 40 + LAST + POLL * 40, POLL),
    "polls and approvals": ((POLL + post(APPROVAL)) * 20, POLL),
    "polls and heads": ((POLL + head(verb=b"HEAD")) * 40, POLL),
    "polls apart": (POLL, POLL, POLLS["tag: star"], POLLS["version 2017-03-01"], POLL),
    "different polls at once": (b"".join(POLLS.values()),),
    "poll and garbage": (POLL + b"\x00\x01garbage\r\n\r\n",),
    "two polls and garbage": (POLL + POLL + b"\x00\x01garbage\r\n\r\n",),
    "two polls and a chunk that is none": (POLL + POLL + head(TE, verb=b"POST") + b"zz\r\n",),
    "two polls and a part of a body": (POLL + POLL + post(APPROVAL)[:-9],),
    "two approvals and a chunk that is none": (
        post(APPROVAL) * 2 + head(TE, verb=b"POST") + b"zz\r\n",
    ),
    "poll, then garbage": (POLL, b"\x00\x01garbage\r\n\r\n"),
    "poll and a part of the next": (POLL + POLL[:20], POLL[20:]),
    "poll, then a part of the next": (POLL, POLL[:20], POLL[20:], POLL),
    "poll and a part, never the rest": (POLL + POLL[:20],),
    "close and a poll at once": (LAST + POLL,),
    "close, then a poll": (LAST, POLL),
    "close, then a poll twice": (POLL, LAST, POLL, POLL),
    "old poll and a poll": (head(version=b"HTTP/1.0") + POLL,),
    "head and a poll": (head(verb=b"HEAD") + POLL,),
    "head, then a poll": (head(verb=b"HEAD"), POLL),
    "bad poll, good poll": (head(metadata=b""), POLL),
    "unknown path, then a poll": (get(b"/nothing"), POLL),
    "the end of one head and a poll": (POLL[:-2], b"\r\n" + POLL),
    "a head whose value is a poll": (b"GET / HTTP/1.1\r\nX: ", POLL),
    "a request line that goes on with a poll": (b"GET /", POLL),
    "a verb that goes on with a poll": (b"GE", POLL),
    "a line, then a poll": (b"\r\n", POLL),
    "a cr, then a poll": (b"\r", POLL),
    "a poll, a line, a poll": (POLL, b"\r\n", POLL),
    "nothing, then a poll": (b"", POLL),
    "a chunk that looks whole": (POLL[:-4] + b"\r\nX: a", b"\r\n\r\n", POLL),
}

SIZES: dict[str, bytes] = {
    **{f"a poll of {size}": padded(size) for size in (2_047, 2_048, 2_049, 4_095, 4_096, 4_097)},
    **{f"a poll of {size}": padded(size) for size in (8_192, 16_000, 16_383, 16_384, 16_385)},
    **{f"a poll of {size}": padded(size) for size in (16_420, 16_480, 16_600, 33_000, 65_536)},
    **{
        f"{count} header lines": head(*(b"X-%d: a" % at for at in range(count - 2)))
        for count in (31, 32, 33, 63, 64, 65, 99, 100, 101, 127, 128, 129, 256, 1_000)
    },
    "a long name": head(b"X" * 2_000 + b": a"),
    "a long target": get(PATH + b"?api-version=" + NEWEST + b"&x=" + b"a" * 3_000),
    "a very long target": get(PATH + b"?api-version=" + NEWEST + b"&x=" + b"a" * 20_000),
    "a long tag": head(b"If-None-Match: " + b'"x", ' * 300 + TAG),
    "a long target of an unknown verb": head(verb=b"BREW", target=b"/" + b"a" * 3_000),
    "a very long target of an unknown verb": head(verb=b"BREW", target=b"/" + b"a" * 9_000),
    "a long target of high bytes of an unknown verb": head(
        verb=b"BREW", target=b"/" + b"\xff" * 3_000
    ),
    "a long head of an unknown verb": head(b"X: " + b"a" * 3_000, verb=b"BREW"),
    "a long verb": head(verb=b"A" * 65),
    "a very long verb": head(verb=b"A" * 3_000),
    "a long fold": head(b"X-Fold: " + b"a" * 3_000 + b"\r\n b"),
    "long and upgrade": head(b"X: " + b"a" * 3_000, b"Connection: Upgrade", b"Upgrade: h2c"),
    "long and close": head(b"X: " + b"a" * 3_000, b"Connection: close") + POLL,
    "upgrade and long": head(b"Connection: Upgrade", b"Upgrade: h2c", b"X: " + b"a" * 3_000),
    "a chunk that ends with a poll, and an unknown verb": padded(2_049) + head(verb=b"BREW"),
    "a chunk that ends with a poll, and a part": padded(2_049) + POLL[:50],
    "a chunk that ends before the last byte of a poll": padded(2_050) + POLL,
    "many leading lines": b"\r\n" * 1_500 + POLL,
    "many trailing lines": POLL + b"\r\n" * 1_500 + POLL,
    "a line without end": b"A" * 20_000,
    "a head without end": POLL[:-2] + b"X: a\r\n" * 4_000,
}


def named() -> dict[str, Case]:
    """Every case that is written here, by its name."""
    found: dict[str, tuple[bytes, ...]] = {f"get {n}": (data,) for n, data in POLLS.items()}
    found |= {f"target {name}": (get(target),) for name, target in TARGETS.items()}
    found |= {f"header {name}": (head(*lines),) for name, lines in HEADERS.items()}
    found |= {f"framed {name}": segments for name, segments in FRAMED.items()}
    found |= {f"line {name}": (data,) for name, data in LINES.items()}
    found |= {f"many {name}": segments for name, segments in MANY.items()}
    found |= {f"size {name}": (data,) for name, data in SIZES.items()}
    found["nothing at all"] = ()
    return {name: Case(segments) for name, segments in found.items()}


def variants(case: Case) -> Iterator[Case]:
    """The same between good polls, in fewer pieces, and with an end right behind it."""
    response, whole = case.segments, case.whole
    for segments in (
        (POLL, *response, POLL),
        (*response, POLL),
        (POLL + whole, POLL),
        (whole + POLL,),
        (POLL, POLL + whole),
        (whole, whole),
    ):
        yield Case(segments, case.machine)
    yield Case(response, case.machine, hurried=True)
    yield Case((POLL, *response), case.machine, hurried=True)
    yield Case((POLL + whole,), case.machine, hurried=True)
    yield Case((POLL, POLL + whole), case.machine, hurried=True)


def in_bytes(case: Case) -> Iterator[Case]:
    """The same in single ones, unless there are too many."""
    if len(case.whole) <= SHORT:
        yield Case(tuple(bytes([byte]) for byte in case.whole), case.machine)


def cuts(case: Case, step: int = 1, first: int = 1) -> Iterator[Case]:
    """The same bytes in two pieces, by turns on a fresh line and on one that has polled."""
    whole = case.whole
    for at in range(first, len(whole), step):
        pieces = (whole[:at], whole[at:])
        # By turns, too, with the end of all that is said right behind it.
        segments = pieces if at // step % 2 else (POLL, *pieces)
        yield Case(segments, case.machine, hurried=at // step % 4 > 1)


def catalogue(*parts: Mapping[str, Case]) -> dict[str, Case]:
    """All of these under one roof; a name may stand once."""
    found: dict[str, Case] = {}
    for part in parts:
        assert found.keys().isdisjoint(part)
        found |= part
    return found
