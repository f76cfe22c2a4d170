"""The URL of a service, as people write it."""

from __future__ import annotations

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
    ("http://", "it has no host"),
    (":8170", "it has no host"),
    ("https:///path", "it has no host"),
    ("ftp://127.0.0.1:8170", "it must begin with http:// or https://"),
    ("http:127.0.0.1:8170", "two slashes are missing after the colon"),
    ("http:/127.0.0.1:8170", "two slashes are missing after the colon"),
    ("localhost:abc", "the port must be a number from 1 to 65535"),
    ("127.0.0.1:0", "the port must be a number from 1 to 65535"),
    ("http://127.0.0.1:65536", "the port must be a number from 1 to 65535"),
    ("http://[::1", "the address in brackets is not an IPv6 address"),
    ("http://a\tb:1", "it contains spaces or control characters"),
    ("http://127.0.0.1:8170\n", "it contains spaces or control characters"),
    ("http://127.0.0.1:8170/?x=1", "it must end with the path"),
    ("http://127.0.0.1:8170#top", "it must end with the path"),
]


def test_several_urls_are_separated_by_commas_or_spaces() -> None:
    three = "http://c1:8170,https://c2,http://c3:8170"
    assert service_urls(" c1:8170, https://c2/  c3:8170,c1:8170 ") == three
    with pytest.raises(ValueError, match="it has no host"):
        service_urls("c1:8170, :8170")


@pytest.mark.parametrize(("text", "problem"), WRONG)
def test_what_is_wrong_with_a_url_is_said_with_an_example(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as refused:
        service_url(text)
    assert str(refused.value) == (
        f"'{text}' is not the URL of a service: {problem}; write for example http://127.0.0.1:8170"
    )
    with pytest.raises(ControlError, match="is not the URL of a service"):
        ControlClient(text).status()


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="pass a token with --token-file") as refused:
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
        assert "the port must be a number from 1 to 65535" in result.stderr


@pytest.mark.parametrize(
    "command", ["event list", "event schedule Reboot web_0", "feed", "history --json", "backup b"]
)
def test_where_nothing_listens_a_command_names_the_url_and_how_to_start_a_service(
    command: str,
) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--url", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.stderr == (
        "forewarn: no service answers at http://127.0.0.1:1: Connection refused; is the service"
        " running? Start one with 'forewarn dev' or 'forewarn serve'\n"
    )


def test_a_url_without_a_port_is_reported_with_the_port_that_was_used() -> None:
    result = CliRunner().invoke(app, ["event", "list", "--url", "127.255.255.254"])
    assert "no service answers at http://127.255.255.254 (port 80): " in result.stderr
