"""Refusals are values; each interface has words for every hint."""

from forewarn.cli import output
from forewarn.control.http import problems
from forewarn.core.refusal import Hint, conflict, invalid, unknown_name


def test_the_api_and_the_command_line_have_a_text_for_every_hint() -> None:
    assert set(problems.HINTS) == set(Hint)
    assert set(output.HINTS) == {hint.value for hint in Hint}


def test_a_hint_is_rendered_with_the_texts_of_an_interface() -> None:
    refused = conflict("failed", hint=Hint.REPAIR_HOST, about="h2")
    assert str(refused) == "failed"
    assert refused.with_hint({Hint.REPAIR_HOST: "repair {about}"}) == "failed; repair h2"
    assert refused.with_hint({}) == "failed"


def test_a_refusal_begins_with_its_line_and_field() -> None:
    assert str(invalid("unknown key", line=3, field="groups[0].x")) == (
        "line 3: groups[0].x: unknown key"
    )


def test_an_unknown_name_suggests_the_nearest() -> None:
    refused = unknown_name("machine", "web_00", ["web_0", "db"])
    assert refused.suggestion == "web_0"
    assert refused.message == "no machine 'web_00'; did you mean 'web_0'?"
    assert unknown_name("machine", "zzz", ["web_0"]).suggestion == ""
