"""The URL of a service, as people write it."""

from __future__ import annotations

import errno
import os
import re

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.client.connection import service_url, service_urls


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8170", "http://127.0.0.1:8170"),
        ("localhost:8170/", "http://localhost:8170"),
        ("//127.0.0.1:8170", "http://127.0.0.1:8170"),
        ("[::1]:8170", "http://[::1]:8170"),
        ("http://127.0.0.1:8170///", "http://127.0.0.1:8170"),
        ("HTTPS://forewarn.example.net", "HTTPS://forewarn.example.net"),
        ("https://proxy.example.net/forewarn/", "https://proxy.example.net/forewarn"),
    ],
)
def test_a_url_may_be_written_without_its_scheme_and_with_slashes_at_its_end(
    text: str, url: str
) -> None:
    assert service_url(text) == url
    assert service_url(url) == url


WRONG = [
    ("http://", "no host"),
    (":8170", "no host"),
    ("https:///path", "no host"),
    ("ftp://127.0.0.1:8170", "http:// or https://"),
    ("http:127.0.0.1:8170", "two slashes"),
    ("http:/127.0.0.1:8170", "two slashes"),
    ("localhost:abc", "1 to 65535"),
    ("127.0.0.1:0", "1 to 65535"),
    ("http://127.0.0.1:65536", "1 to 65535"),
    ("http://[::1", "IPv6 address"),
    ("http://a\tb:1", "control characters"),
    ("http://127.0.0.1:8170\n", "control characters"),
    ("http://127.0.0.1:8170/?x=1", "with the path"),
    ("http://127.0.0.1:8170#top", "with the path"),
]


def test_several_urls_are_separated_by_commas_or_spaces() -> None:
    three = "http://c1:8170,https://c2,http://c3:8170"
    assert service_urls(" c1:8170, https://c2/  c3:8170,c1:8170 ") == three
    with pytest.raises(ValueError, match="no host"):
        service_urls("c1:8170, :8170")


@pytest.mark.parametrize(("text", "problem"), WRONG)
def test_a_wrong_url_is_refused_with_an_example(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as refused:
        service_url(text)
    assert str(refused.value).startswith(f"'{text}' ")
    assert str(refused.value).endswith(" http://127.0.0.1:8170")
    with pytest.raises(ControlError, match=re.escape(str(refused.value))):
        ControlClient(text).status()


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="--token-file") as refused:
        service_url("http://alice:hunter2@127.0.0.1:8170")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("command", ["event list", "clock show", "feed", "history --json"])
def test_every_command_refuses_a_wrong_url_as_wrong_usage(command: str) -> None:
    for words, env in (
        ([*command.split(), "--url", "localhost:abc"], {}),
        (command.split(), {"FOREWARN_URL": "localhost:abc"}),
    ):
        result = CliRunner().invoke(app, words, env={**env, "COLUMNS": "200"})
        assert result.exit_code == 2
        assert "1 to 65535" in result.stderr


@pytest.mark.parametrize(
    "command", ["event list", "event schedule Reboot web_0", "feed", "history --json", "backup b"]
)
def test_where_nothing_listens_a_command_names_the_url_and_how_to_start_a_service(
    command: str,
) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--url", "127.0.0.1:1"])
    assert result.exit_code == 1
    refused = os.strerror(errno.ECONNREFUSED)
    assert re.search(f"http://127.0.0.1:1: {refused}.*'forewarn dev'", result.stderr)
    assert result.stderr.count("\n") == 1


def test_a_url_without_a_port_is_reported_with_the_port_that_was_used() -> None:
    result = CliRunner().invoke(app, ["event", "list", "--url", "127.255.255.254"])
    assert "http://127.255.255.254 (port 80): " in result.stderr
