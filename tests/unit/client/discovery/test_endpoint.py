"""Where the endpoint may be, as it is said; that one answers there is another matter."""

from __future__ import annotations

import pytest

from forewarn.client import Client, pace
from forewarn.client.discovery import endpoint
from forewarn.client.errors import ClientError, InvalidEndpointError
from forewarn.client.steps import Location


@pytest.mark.parametrize(
    ("response", "host", "port", "authority"),
    [
        ("http://169.254.169.254", "169.254.169.254", 80, "169.254.169.254"),
        ("HTTP://127.0.1.1:8169/", "127.0.1.1", 8169, "127.0.1.1:8169"),
        ("127.0.1.1:8169", "127.0.1.1", 8169, "127.0.1.1:8169"),
        ("metadata.internal", "metadata.internal", 80, "metadata.internal"),
        ("http://[fd00::1]:81", "fd00::1", 81, "[fd00::1]:81"),
        ("http://[fe80::1%eth0]", "fe80::1%eth0", 80, "[fe80::1]"),
    ],
)
def test_valid_addresses_are_read(response: str, host: str, port: int, authority: str) -> None:
    found = endpoint.parse_endpoint(response)
    assert (found, found.authority) == (Location(host, port), authority)


@pytest.mark.parametrize(
    "response",
    [
        *("https://169.254.169.254", "ftp://x", "http://", "http://:80", "http://x:0", "a b"),
        *("http://x:99999", "http://x:port", "http://me:pass@x", "http://x/metadata", "http://x?a"),
        *("http://exämple", "http://x#y", "http://[::1", "x\r\nEvil: 1"),
    ],
)
def test_an_invalid_address_is_refused_in_one_line(response: str) -> None:
    with pytest.raises(InvalidEndpointError) as refused:
        Client(response)
    assert isinstance(refused.value, ClientError)
    assert isinstance(refused.value, ValueError)
    assert "\n" not in str(refused.value)
    assert "\r" not in str(refused.value)


def test_an_argument_wins_over_the_environment() -> None:
    environ = {"FOREWARN_METADATA": "http://127.0.0.9:1"}
    assert endpoint.configured_endpoint("http://x", environ) == Location("x")
    for none in (None, ""):
        assert endpoint.configured_endpoint(none, environ) == Location("127.0.0.9", 1)
        assert endpoint.configured_endpoint(none, {}) is None
    with pytest.raises(InvalidEndpointError, match=r"^FOREWARN_METADATA: 'http://…@x'"):
        endpoint.configured_endpoint(None, {"FOREWARN_METADATA": "http://me:pass@x"})


@pytest.mark.parametrize("interval", [0.0, 0.01, 16.0, float("nan"), float("inf")])
def test_a_too_long_or_too_short_interval_is_refused(interval: float) -> None:
    with pytest.raises(ValueError, match=r"0\.05 to 15 seconds"):
        Client("http://x", interval=interval)
    assert pace.check_interval(0.05) == 0.05
