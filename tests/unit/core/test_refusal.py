"""Refusals are values; each interface has words for every hint."""

from forewarn.cli import output
from forewarn.control.http import problems
from forewarn.core.refusal import Hint, conflict, invalid, unknown_name


def test_the_api_and_the_command_line_have_words_for_every_hint() -> None:
    assert set(problems.HINTS) == set(Hint)
    assert set(output.HINTS) == {hint.value for hint in Hint}


def test_a_refusal_is_put_into_the_words_of_an_interface() -> None:
    refused = conflict("it has failed", hint=Hint.REPAIR_HOST, about="h2")
    assert str(refused) == "it has failed"
    assert refused.with_hint({Hint.REPAIR_HOST: "repair {about}"}) == "it has failed; repair h2"
    assert refused.with_hint({}) == "it has failed"


def test_the_place_comes_first() -> None:
    assert str(invalid("unknown key", line=3, field="groups[0].x")) == (
        "line 3: groups[0].x: unknown key"
    )


def test_an_unknown_name_suggests_the_nearest() -> None:
    refused = unknown_name("machine", "web_00", ["web_0", "db"])
    assert refused.suggestion == "web_0"
    assert refused.message == "no machine 'web_00'; did you mean 'web_0'?"
    assert unknown_name("machine", "zzz", ["web_0"]).suggestion == ""
