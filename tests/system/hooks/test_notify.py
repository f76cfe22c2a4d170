"""The hook that tells people: the real Apprise, a web server and a mail server that take it."""

from __future__ import annotations

import email
import json
from pathlib import Path

import pytest

from forewarn.agent.hooks.contract import Failure
from helpers.hook_receivers import Mail, Web
from helpers.hook_runs import EVENT, Hook

SECRET = "open-sesame"


def test_a_notification_has_the_event_in_its_title_and_body(tmp_path: Path) -> None:
    with Web() as web, Mail() as mail:
        urls = [
            f"json://me:{SECRET}@127.0.0.1:{web.port}/{SECRET}",
            f"mailto://127.0.0.1:{mail.port}?from=agent@example.org&to=ops@example.org",
        ]
        hook = Hook("notify", {"urls": urls}, tmp_path)
        status, output = hook.program("prepare", left=50)
        assert (status, output) == (0, "address 1 (json): sent\naddress 2 (mailto): sent\n")
        hook.here("withdrawn")

        first, later = (json.loads(one.body) for one in web.received)
        [letter, _] = mail.letters
    assert first["title"].startswith("web_0: Reboot in ")
    assert first["type"] == "warning"
    body = first["message"].splitlines()
    assert body[0].endswith(f" (Platform): {EVENT['description']}")
    assert f"Not before: {EVENT['not_before']}" in body
    assert later["title"].startswith("web_0: Reboot is withdrawn")
    assert later["type"] == "info"
    written = email.message_from_bytes(letter)
    assert written["To"] == "ops@example.org"
    assert str(written["Subject"]).startswith("web_0: Reboot in ")


def test_another_attempt_notifies_only_those_not_reached(tmp_path: Path) -> None:
    with Web() as web, Web() as failing:
        failing.answers = [(500, {})]
        file = tmp_path / "urls"
        lines = ["# ours", "", f"json://127.0.0.1:{web.port}/{SECRET}"]
        lines += [f"json://me:{SECRET}@127.0.0.1:{failing.port}"]
        file.write_text("\n".join(lines))
        options = {"urls_file": str(file), "title": "Snapshot here"}
        hook = Hook("notify", options, tmp_path / "state")
        with pytest.raises(Failure) as failed:
            hook.here("started")
        assert str(failed.value).startswith("address 2 (json) was not ")
        assert str(failed.value).endswith("; address 1 (json): sent")
        assert hook.here("started", attempt=2).splitlines() == [
            "address 1 (json): already sent",
            "address 2 (json): sent",
        ]
        assert (len(web.received), len(failing.received)) == (1, 2)
        assert json.loads(web.received[0].body)["title"] == "Snapshot here"


def test_texts_are_sent_as_plain_text_and_secrets_are_not_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reported = f"<b>bold</b> {{{{x}}}} %s @everyone\n{'long ' * 3_000}"
    urls = [f"nonsense://{SECRET}", f"json://{SECRET}:wrong/{SECRET}", SECRET, "hunter2:x"]
    hook = Hook("notify", {"urls": urls}, tmp_path, description=reported)
    with pytest.raises(Failure) as failed:
        hook.here("prepare")
    assert str(failed.value).count("was not sent") == 4
    problems = hook.check()
    assert [problem.partition(" is not ")[0] for problem in problems] == [
        "address 1 (nonsense)",
        "address 2 (json)",
        "address 3",
        "address 4",
    ]
    printed = "".join(capfd.readouterr())
    assert SECRET not in "".join([str(failed.value), *problems, printed])
    with Web() as web:
        hook.options["urls"] = [f"json://127.0.0.1:{web.port}"]
        hook.here("finished")
        assert (
            "<b>bold</b> {{x}} %s @everyone\nlong long"
            in json.loads(web.received[0].body)["message"]
        )
