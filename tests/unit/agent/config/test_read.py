"""The agent's configuration: what it says, and everything that is wrong with it at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forewarn.agent.config.model import Config
from forewarn.agent.config.read import MAX_CONFIG_BYTES, ConfigError, read
from forewarn.agent.hooks import KINDS


def config(directory: Path, text: str) -> Config:
    path = directory / "agent.toml"
    path.write_text(text)
    return read(path)


def problems(directory: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        config(directory, text)
    before = f"{directory / 'agent.toml'}: "
    assert all(line.startswith(before) for line in raised.value.problems)
    return [line.removeprefix(before) for line in raised.value.problems]


def test_every_key_of_a_configuration_is_read(tmp_path: Path) -> None:
    made = config(
        tmp_path,
        """
        [agent]
        state = "state"
        endpoint = "http://127.0.0.1:8169"
        listen = ""
        approve = "when-done"
        shared = "/srv/shared"

        [[rule]]
        name = "short freezes"
        type = "Freeze"
        max_duration = "10s"

        [[rule]]
        source = ["User", "Platform"]
        min_duration = 5
        machine = "any"
        labels = { tier = "web" }
        hooks = ["drain", "mine"]
        when = "5m"
        approve = "coordinated"

        [hook.drain]
        haproxy = { socket = "/run/haproxy/admin.sock", server = "web/web1" }
        timeout = "2m"
        retries = 2
        if_it_fails = "stop"

        [hook.mine]
        prepare = "bin/save --all 'two words'"
        undo = ["restore"]
        """,
    )
    assert made.state == tmp_path / "state"
    assert made.endpoint == "http://127.0.0.1:8169"
    assert (made.listen, made.shared) == ("", Path("/srv/shared"))
    freezes, second = made.rules
    assert (freezes.name, freezes.type, freezes.max_duration) == ("short freezes", ("Freeze",), 10)
    assert (freezes.machine, freezes.lead, freezes.approve) == ("mine", None, "when-done")
    assert (second.name, second.min_duration, second.lead) == ("rule 2", 5.0, 300.0)
    assert (second.approve, second.hooks) == ("coordinated", ("drain", "mine"))
    drain, mine = made.hooks.values()
    assert (drain.kind, drain.options["server"]) == ("haproxy", "web/web1")
    assert (drain.stages, drain.timeout, drain.retries) == (("prepare", "undo"), 120.0, 2)
    assert drain.if_it_fails == "stop"
    assert mine.commands == {
        "prepare": (str(tmp_path / "bin/save"), "--all", "two words"),
        "undo": ("restore",),
    }
    assert made.warnings == ()


def test_an_empty_configuration_has_the_defaults(tmp_path: Path) -> None:
    made = config(tmp_path, "")
    assert made.state == Path("/var/lib/forewarn-agent")
    assert (made.endpoint, made.listen, made.shared) == (None, "127.0.0.1:9169", None)
    (warning,) = made.warnings
    assert "no [[rule]]" in warning


def test_all_problems_are_reported_with_their_place(tmp_path: Path) -> None:
    reported = problems(
        tmp_path,
        """
        [agent]
        aprove = "never"
        approve = "when done"

        [[rule]]
        name = "a"
        max_duration = "10x"
        hooks = ["drian", "c", "c"]
        machine = 5

        [[rule]]
        name = "a"
        machine = "all"
        when = "soon"
        min_duration = "2m"
        max_duration = "1m"

        [hook.drain]
        haproxy = { sockt = "/x", server = "web/web1" }
        timeout = "0.1s"
        retries = 99
        if_it_fails = "halt"

        [hook.b]
        systemd = { units = ["a b"] }

        [hook.c]
        undo = "x 'y"

        [hook.d]

        [hook.e]
        log = {}
        prepare = "a"

        [hook."f/g"]
        prepare = []

        [hok]
        """,
    )
    assert sorted(reported) == sorted(
        [
            "hok: unknown key; did you mean 'hook'?",
            "agent.aprove: unknown key; did you mean 'approve'?",
            "agent.approve: 'when done' is not one of never, when-done, user-at-once, coordinated;"
            " did you mean 'when-done'?",
            "hook.drain.timeout: '0.1s' is not from 1 s to 1 d",
            "hook.drain.retries: 99 is not from 0 to 20",
            "hook.drain.if_it_fails: 'halt' is not one of go on, stop",
            "hook.drain.haproxy.sockt: unknown key; did you mean 'socket'?",
            "hook.b.systemd: 'a b' is not the name of a unit; expected for example app.service",
            'hook.c.undo: "x \'y" cannot be split into words: No closing quotation',
            "hook.c.undo: there is no prepare to undo, so it never runs",
            "hook.d: does nothing; add a command for announced, prepare, undo, started, finished,"
            f" withdrawn, or one of {', '.join(sorted(KINDS))}",
            "hook.e: a hook has either commands or one built-in hook, not log, prepare",
            "hook.f/g: a hook's name must consist of letters, digits, '_', '.' and '-', begin with"
            " a letter, a digit or '_', and have at most 64 characters",
            "hook.f/g.prepare: a program and its arguments are expected; omit it for none",
            "rule[0].machine: expected text, not a whole number; write it in quotes",
            "rule[0].hooks: there is no hook 'drian'; did you mean 'drain'?",
            "rule[0].hooks: listed twice: c",
            "rule[0].max_duration: '10x' is not a duration; write for example 90s, 15m, 1h30m or"
            " 7d",
            "rule[1]: min_duration is longer than max_duration, so nothing matches",
            "rule[1].when: 'soon' is not a duration; write for example 90s, 15m, 1h30m or 7d; or"
            " 'at once'",
            "rule[1].machine: 'all' is not one of mine, peer, any",
            "rule: two rules have the name 'a'; the log could not distinguish them",
        ]
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rule = 5", "rule: expected a list"),
        ("[rule]", "rule: write [[rule]]"),
        ("rule = [5]", "rule[0]: a table"),
        ("agent = []", "agent: expected a mapping"),
        ("[hook]\na = 5", "hook.a: a table"),
        ("[hook.a]\nlog = 5", "hook.a.log: expected a mapping"),
        ("[hook.a]\nprepare = [1]", "hook.a.prepare: expected text"),
        ("a = ", "Invalid value (at "),
        ('[agent]\nendpoint = "https://x"', "agent.endpoint: 'https://x': "),
        ('[agent]\nlisten = "0.0.0.0:1"', "agent.listen: 0.0.0.0:1 "),
    ],
)
def test_a_value_of_the_wrong_shape_is_one_problem(tmp_path: Path, text: str, says: str) -> None:
    (reported,) = problems(tmp_path, text)
    assert reported.startswith(says)


def test_probable_mistakes_are_warnings(tmp_path: Path) -> None:
    made = config(
        tmp_path,
        """
        [[rule]]
        name = "all"
        machine = "any"
        [[rule]]
        name = "rebots"
        type = "Rebot"
        [hook.idle]
        log = {}
        """,
    )
    type, unused, unreachable = made.warnings
    assert re.search(r"agent\.toml: rule\[1\]\.type: .*'Rebot'.*'Reboot'", type)
    assert re.search(r"agent\.toml: hook\.idle: ", unused)
    assert re.search(r"agent\.toml: rule\[1\]: never .*'all'.*'rebots'", unreachable)


def test_a_missing_or_too_large_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "none.toml")
    (tmp_path / "large.toml").write_text("#" * (MAX_CONFIG_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 1,048,576 bytes"):
        read(tmp_path / "large.toml")
