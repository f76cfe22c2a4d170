"""What is wrong with a table [[notify]] is said before it is used."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from forewarn.node.settings import SettingsError, load
from forewarn.notify.config import without_secrets
from forewarn.notify.notifications import problems
from helpers.notifying_service import secret_file, table

CLOUDEVENTS = {"url": "https://example.org/s3cr3t"}


@pytest.mark.parametrize(
    ("fields", "key", "says"),
    [
        ({"name": "a b"}, "name", "'a b' "),
        ({"kinds": ["raise"]}, "kinds", "unknown kind 'raise'; did you mean 'raised'"),
        ({"kinds": ["seen"]}, "kinds", "unknown kind 'seen'"),
        ({"kinds": []}, "kinds", "is empty"),
        ({"label": "a b"}, "label", "'a b': "),
        ({"owner": "a b"}, "owner", "'owner=a b': "),
        ({"severity": "warn"}, "severity", "'warn': did you mean 'warning'"),
        ({"timezone": "Berlin"}, "timezone", "'Berlin' "),
        ({"max_age": "soon"}, "max_age", "'soon' "),
        ({"max_age": "59s"}, "max_age", "'59s' must be"),
        ({"at_most_every": "1h"}, "at_most_every", "is only for"),
        ({"cloudevents": None}, "", "needs exactly one"),
        ({"apprise": {"urls_file": "a"}}, "", "needs exactly one"),
        ({"event-grid": {"url": "x"}}, "", "needs exactly one"),
        ({"cloudevents": None, "event-grid": {"url": "x"}}, "event-grid.url", "is not a URL"),
        ({"cloudevents": {}}, "cloudevents.url", "set either url"),
        ({"cloudevents": {"url": "x"}}, "cloudevents.url", "is not a URL"),
        ({"cloudevents": {"url": "http://a:b@c"}}, "cloudevents.url", "must not contain"),
        ({"cloudevents": CLOUDEVENTS | {"timeout": "0s"}}, "cloudevents.timeout", "'0s' must be"),
        ({"cloudevents": CLOUDEVENTS | {"source": ""}}, "cloudevents.source", "must be a URI"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(
    fields: dict[str, Any], key: str, says: str
) -> None:
    found = list(table(**{"cloudevents": CLOUDEVENTS, **fields}).problems())
    assert len(found) == 1, found
    assert found[0][0] == key
    assert found[0][1].startswith(says)


def test_problems_have_lines_and_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.toml"
    path.write_text(
        '[[notify]]\nname = "a"\n[[notify]]\nname = "a"\napprise = { urls_file = 1 }\n'
        '[[notify]]\nname = "c"\ncloudevents = { mode = "binry", url = "https://example.org" }\n'
        '[[notify]]\nname = "a"\nwebhook = { url = "ftp://s3cr3t" }\n'
    )
    with pytest.raises(SettingsError) as caught:
        load(path, {})
    places = [
        ":3: notify[1].apprise.urls_file: ",
        ":6: notify[2].cloudevents.mode: ",
        ":1: notify 'a': needs exactly one ",
        ":9: notify 'a': webhook.url: ",
        ":9: notify 'a': webhook.secret_file: ",
        ":9: notify 'a': name: ",
    ]
    for problem, place in zip(caught.value.problems, places, strict=True):
        assert problem.startswith(f"{path}{place}")
        assert "s3cr3t" not in problem
    path.write_text('[[notify]]\nname = "a"\napprise = { urls_file = "urls" }\n')
    (config,) = load(path, {})[1].notify
    assert config.apprise is not None
    assert config.apprise.urls_file == str(tmp_path / "urls")


@pytest.mark.filterwarnings("ignore:'imghdr'")  # of a plugin of Apprise
def test_files_are_checked_without_showing_what_is_in_them(tmp_path: Path) -> None:
    def found(**fields: Any) -> list[str]:
        return [text for _, text in problems([table(**fields)])]

    webhook = {"url": "https://example.org/s3cr3t"}
    missing = str(tmp_path / "missing")
    assert found(webhook=webhook | {"secret_file": secret_file(tmp_path)}) == []
    unreadable = f"secret_file {missing} .*{os.strerror(errno.ENOENT)}"
    assert any(
        re.match(unreadable, text) for text in found(webhook=webhook | {"secret_file": missing})
    )
    open_to_all = secret_file(tmp_path, name="open")
    Path(open_to_all).chmod(0o644)
    assert any(
        "every user" in text for text in found(webhook=webhook | {"secret_file": open_to_all})
    )
    wrong = secret_file(tmp_path, "nonsense://s3cr3t", "urls")
    assert any("address 1 (nonsense)" in text for text in found(apprise={"urls_file": wrong}))
    for text in found(apprise={"urls_file": wrong}):
        assert "s3cr3t" not in text


def test_a_shown_table_has_no_secrets() -> None:
    shown = without_secrets({"name": "a", "label": "", "cloudevents": CLOUDEVENTS, "apprise": None})
    assert shown == {"name": "a", "cloudevents": {"url": "https://example.org/***"}}
