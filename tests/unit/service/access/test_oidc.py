"""The settings of an OIDC issuer: what is wrong with them is said before anybody relies on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.core.access import Limit, Role
from forewarn.core.labels import parse
from forewarn.node.settings import SettingsError, load
from forewarn.service.access.oidc import AccessRule, Oidc, is_token

TABLE = """
[oidc]
issuer = "https://login.example.net"
audience = "forewarn"
ca = "ca.pem"
[[oidc.access]]
member_of = "ops"
role = "admin"
"""


def problems(**changed: Any) -> list[tuple[str, str]]:
    rules = (AccessRule(member_of="ops", role=Role.ADMIN),)
    fields: dict[str, Any] = {"issuer": "https://a", "audience": "forewarn", "access": rules}
    return list(Oidc(**fields | changed).problems())


@pytest.mark.parametrize(
    "issuer", ["https://a", "https://a/realms/b/", "http://127.0.0.1:9400", "http://localhost:1"]
)
def test_an_issuer_is_reached_over_tls_or_is_on_this_machine(issuer: str) -> None:
    assert problems(issuer=issuer) == []


@pytest.mark.parametrize(
    ("changed", "key", "message"),
    [
        ({"issuer": "http://login.example.net"}, "issuer", "must begin with https://"),
        ({"issuer": "login.example.net"}, "issuer", "must be a URL such as"),
        ({"issuer": "https://a?b=c"}, "issuer", "without a query"),
        ({"issuer": "https://[::1"}, "issuer", "is not a URL"),
        ({"audience": ""}, "audience", "must not be empty"),
        ({"audience": ()}, "audience", "must not be empty"),
        ({"audience": ("a", " ")}, "audience", "must not be empty"),
        ({"name_claim": " "}, "name_claim", "must be the name of a claim"),
        ({"algorithms": ("RS256", "HS256")}, "algorithms", "HS256 cannot be used; choose from"),
        ({"algorithms": ("none",)}, "algorithms", "none cannot be used"),
        ({"algorithms": ()}, "algorithms", "choose from RS256"),
        ({"leeway": "soon"}, "leeway", "'soon' is not a duration"),
        ({"leeway": "2h"}, "leeway", "must be at most 1h"),
        ({"ca": "/nowhere.pem"}, "ca", "there is no file /nowhere.pem"),
        ({"access": ()}, "access", "add a table [[oidc.access]]"),
    ],
)
def test_what_cannot_be_used_is_refused(changed: dict[str, Any], key: str, message: str) -> None:
    ((place, problem),) = problems(**changed)
    assert (place, message in problem) == (key, True), problem


@pytest.mark.parametrize(
    ("rule", "place", "message"),
    [
        ({"role": Role.TENANT}, "access[0]", "a tenant must be limited"),
        ({"role": Role.ADMIN, "groups": ("a",)}, "access[0]", "an admin cannot be limited"),
        ({"role": Role.VIEWER, "label": "=!"}, "access[0].label", ""),
        ({"role": Role.VIEWER, "member_of": ""}, "access[0].member_of", "the name of a group"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(
    rule: dict[str, Any], place: str, message: str
) -> None:
    ((found, problem),) = problems(access=(AccessRule(**{"member_of": "ops", **rule}),))
    assert (found, message in problem) == (place, True), problem


def test_issuers_are_read_from_a_file_with_its_paths(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    file = tmp_path / "serve.toml"
    file.write_text(TABLE)
    oidc = load(file, {})[1].oidc
    assert oidc is not None
    assert (oidc.ca, oidc.access[0].role) == (str(tmp_path / "ca.pem"), Role.ADMIN)
    variable = {"FOREWARN_OIDC": msgspec.json.encode(oidc).decode()}
    assert load(None, variable)[1].oidc == oidc


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"admin"', '"root"', "oidc.access[0].role: unknown value 'root'; expected one of viewer"),
        ("audience", "audiense", "oidc.audiense: unknown key; did you mean 'audience'?"),
        ("member_of", "member", "oidc.access[0].member: unknown key; did you mean 'member_of'?"),
        ('"forewarn"', "7", "oidc.audience: expected"),
        ("https", "http", "oidc.issuer: 'http://login.example.net' must begin with https://"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    (tmp_path / "ca.pem").touch()
    file = tmp_path / "serve.toml"
    file.write_text(TABLE.replace(old, new))
    with pytest.raises(SettingsError) as caught:
        load(file, {})
    (problem,) = caught.value.problems
    assert problem.startswith(f"{file}:2: {message}"), problem


def test_limits_of_several_rules_allow_what_any_of_them_allows() -> None:
    limit = Limit(groups=("a",), labels=parse("tier=web"), other_labels=(parse("tier=db"),))
    allowed = [limit.allows(*of) for of in (("a", {}), ("b", {"tier": "db"}), ("c", {"tier": "x"}))]
    assert allowed == [True, True, False]


@pytest.mark.parametrize(
    "text", ["", "a.b", "a.b.c.d", "a..c", "a.b.c\n", "fw_00000000_x", "ä.b.c"]
)
def test_other_texts_do_not_have_the_form_of_a_token(text: str) -> None:
    assert not is_token(text)
