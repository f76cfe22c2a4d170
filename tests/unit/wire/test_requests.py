"""What a request asks for, what is wrong with it, and which of several wrongs answers."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.wire import errors
from forewarn.wire.errors import Problem
from forewarn.wire.headers import MAX_TAGS, parse_tags, tag_matches
from forewarn.wire.requests import (
    MAX_RESOURCE,
    GetDocument,
    GetInstance,
    GetToken,
    GetVersions,
    MetadataRequest,
    PostApproval,
    read_metadata_request,
    without_token,
    write_token,
)
from forewarn.wire.versions import BY_NAME, NEWEST

EVENTS = "/metadata/scheduledevents"
NEWEST_QUERY = b"api-version=2020-07-01"
METADATA = (b"metadata", b"true")
ID = "28512AF7-C957-4500-9BC4-842D6FB531E4"


def ask(
    method: str = "GET",
    path: str = EVENTS,
    query: bytes = NEWEST_QUERY,
    headers: tuple[tuple[bytes, bytes], ...] = (METADATA,),
) -> MetadataRequest | Problem:
    return read_metadata_request(method, path, query, headers)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_version_can_be_read_and_approved_in(name: str) -> None:
    query = f"api-version={name}".encode()
    assert ask(query=query) == GetDocument(BY_NAME[name])
    assert ask("POST", query=query) == PostApproval(BY_NAME[name])


@pytest.mark.parametrize(
    "path",
    [
        "/metadata/scheduledevents",
        "/metadata/scheduledEvents",
        "/METADATA/SCHEDULEDEVENTS",
        "/Metadata/ScheduledEvents",
    ],
)
def test_the_path_is_found_in_any_letter_case(path: str) -> None:
    assert ask(path=path) == GetDocument(NEWEST)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/metadata",
        "/metadata/",
        "/scheduledevents",
        "/metadata/scheduledevent",
        "/metadata/scheduledeventss",
        "/metadata/scheduledevents/1",
        "/metadata/scheduledevents//",
        "//metadata/scheduledevents",
        "/metadata//scheduledevents",
        "/metadata/versions/1",
        "/metadata/instances",
        "/metadata/identity",
        "/metadata/identity/oauth2",
        "/metadata/identity/oauth2/token/1",
        "*",
        "metadata/scheduledevents",
    ],
)
def test_any_other_path_is_not_found(path: str) -> None:
    assert ask(path=path) == errors.NOT_FOUND


@pytest.mark.parametrize(
    "path", ["/metadata/identity/oauth2/token", "/METADATA/Identity/OAuth2/token/"]
)
def test_a_token_of_the_machines_identity_is_asked_for(path: str) -> None:
    query = b"api-version=2018-02-01&resource=https%3A%2F%2Fexample.org"
    assert ask(path=path, query=query) == GetToken("https://example.org")
    problems = {
        errors.method_not_allowed("GET"): ask("POST", path, query),
        errors.FORWARDED: ask(
            path=path, query=query, headers=(METADATA, (b"x-forwarded-for", b"192.0.2.1"))
        ),
        errors.NO_METADATA_HEADER: ask(path=path, query=query, headers=()),
        errors.NAMED_HOST: ask(path=path, query=query, headers=(METADATA, (b"host", b"evil.com"))),
        errors.DUPLICATE_PARAMETER: ask(path=path, query=query + b"&resource=x"),
        errors.NO_RESOURCE: ask(path=path, query=b"api-version=2018-02-01"),
        errors.NO_IDENTITY: ask(path=path, query=query + b"&client_id=x"),
    }
    for host in (
        b"169.254.169.254",
        b"127.0.1.1:8169",
        b"[fd00::1]:80",
        b"[fd00::1]",
        b"LocalHost",
    ):
        headers = (METADATA, (b"host", host))
        assert ask(path=path, query=query, headers=headers) == GetToken("https://example.org")
    for problem, asked in problems.items():
        assert isinstance(asked, GetToken)
        assert asked.problem == problem
    assert isinstance(asked := ask(path=path, query=b"resource=x"), GetToken)
    assert asked.problem is not None
    too_long = ask(path=path, query=query + b"x" * MAX_RESOURCE)
    assert isinstance(too_long, GetToken)
    assert too_long.problem == errors.NO_RESOURCE


def test_a_recorded_answer_has_no_token_and_its_length() -> None:
    body = write_token("a.b.c", "https://example.org", "me", 1, 2, 1)
    shown = without_token(body)
    assert json.loads(shown) == json.loads(body) | {"access_token": "xxxxx"}
    assert len(shown) == len(body)


@pytest.mark.parametrize("verb", ["HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get"])
def test_other_methods_are_not_allowed(verb: str) -> None:
    assert ask(verb) == errors.method_not_allowed("GET, POST")
    assert ask(verb, "/metadata/instance/compute") == errors.method_not_allowed("GET")
    assert ask(verb, "/metadata/versions") == errors.method_not_allowed("GET")


def test_only_events_can_be_posted_to() -> None:
    assert ask("POST", "/metadata/instance") == errors.method_not_allowed("GET")
    assert ask("POST", "/metadata/versions") == errors.method_not_allowed("GET")


@pytest.mark.parametrize("value", [b"", b"1.2.3.4", b"169.254.169.254, 10.0.0.1"])
def test_a_forwarded_request_is_refused(value: bytes) -> None:
    assert ask(headers=(METADATA, (b"x-forwarded-for", value))) == errors.FORWARDED


@pytest.mark.parametrize("value", [b"true", b"True", b"TRUE", b"tRuE", b" true\t"])
def test_the_metadata_header_is_true_in_any_case(value: bytes) -> None:
    assert ask(headers=((b"metadata", value),)) == GetDocument(NEWEST)


@pytest.mark.parametrize("value", [b"", b"false", b"1", b"yes", b"true true", b'"true"', b"true,"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_any_other_value_of_the_metadata_header_is_refused(method: str, value: bytes) -> None:
    for query in (NEWEST_QUERY, b"api-version=2017-03-01"):
        response = ask(method, query=query, headers=((b"metadata", value),))
        assert response == errors.NO_METADATA_HEADER


def test_the_metadata_header_twice_is_refused() -> None:
    assert ask(headers=(METADATA, METADATA)) == errors.NO_METADATA_HEADER


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "2017-03-01"])
def test_a_post_needs_the_header_in_every_version_but_the_preview(name: str) -> None:
    response = ask("POST", query=f"api-version={name}".encode(), headers=())
    assert response == errors.NO_METADATA_HEADER


def test_in_the_preview_a_post_without_the_header_is_accepted_unless_from_a_browser() -> None:
    query = b"api-version=2017-03-01"
    assert ask("POST", query=query, headers=()) == PostApproval(BY_NAME["2017-03-01"])
    origin = (b"origin", b"http://example.org")
    assert ask("POST", query=query, headers=(origin,)) == errors.NO_METADATA_HEADER
    assert ask("POST", query=query, headers=(origin, METADATA)) == PostApproval(
        BY_NAME["2017-03-01"]
    )
    assert ask("GET", query=query, headers=()) == errors.NO_METADATA_HEADER


@pytest.mark.parametrize(
    "query",
    [
        b"api-version=2020-07-01&api-version=2020-07-01",
        b"api-version=2020-07-01&a=1&a=2",
        b"api-version=2020-07-01&a&a",
        b"api-version=2020-07-01&a=&a",
        b"api%2Dversion=2020-07-01&api-version=2019-08-01",
    ],
)
def test_a_repeated_parameter_is_refused(query: bytes) -> None:
    assert ask(query=query) == errors.DUPLICATE_PARAMETER


@pytest.mark.parametrize(
    "query",
    [
        b"api-version=2020-07-01&a=1&b=1",
        b"a&api-version=2020-07-01",
        b"&&api-version=2020-07-01&",
        b"api-version=2020-07-01&=",
        b"api-version=2020-07-01&format=text",
        b"api%2dversion=2020%2D07-01",
        b"api-version=2020-07-01&%ff=%fe",
        b"api-version=2020-07-01&\xff=\xfe",
    ],
)
def test_unknown_parameters_are_ignored(query: bytes) -> None:
    assert ask(query=query) == GetDocument(NEWEST)


@pytest.mark.parametrize(
    "query",
    [
        b"",
        b"api-version",
        b"api-version=",
        b"api-version=latest",
        b"api-version=2020-07-02",
        b"api-version=2021-02-01",
        b"api-version=2020-07-01+",
        b"version=2020-07-01",
    ],
)
def test_a_missing_or_unknown_version_is_refused(query: bytes) -> None:
    for method in ("GET", "POST"):
        response = ask(method, query=query)
        assert isinstance(response, Problem)
        assert response == errors.bad_version(list(BY_NAME))
        assert json.loads(response.body)["newest-versions"] == [
            "2020-07-01",
            "2019-08-01",
            "2019-04-01",
        ]


# In the order in which they answer; each spoils an otherwise good request in one way.
WRONG = ["path", "verb", "forwarded", "metadata", "duplicate", "version"]
REFUSALS = {
    "path": errors.NOT_FOUND,
    "verb": errors.method_not_allowed("GET, POST"),
    "forwarded": errors.FORWARDED,
    "metadata": errors.NO_METADATA_HEADER,
    "duplicate": errors.DUPLICATE_PARAMETER,
    "version": errors.bad_version(list(BY_NAME)),
}


def spoiled(wrong: tuple[str, ...]) -> MetadataRequest | Problem:
    headers = [] if "metadata" in wrong else [METADATA]
    if "forwarded" in wrong:
        headers.append((b"x-forwarded-for", b"10.0.0.1"))
    query = b"api-version=never" if "version" in wrong else NEWEST_QUERY
    return read_metadata_request(
        "PUT" if "verb" in wrong else "GET",
        "/metadata/nothing" if "path" in wrong else EVENTS,
        query + (b"&x=1&x=1" if "duplicate" in wrong else b""),
        headers,
    )


@pytest.mark.parametrize(
    "wrong",
    [some for n in range(1, len(WRONG) + 1) for some in itertools.combinations(WRONG, n)],
    ids="+".join,
)
def test_of_several_mistakes_the_first_is_answered(wrong: tuple[str, ...]) -> None:
    assert spoiled(wrong) == REFUSALS[wrong[0]]


def test_if_none_match_is_read_from_a_get() -> None:
    headers = (METADATA, (b"if-none-match", b'"abc"'))
    assert ask(headers=headers) == GetDocument(NEWEST, '"abc"')
    assert ask("POST", headers=headers) == PostApproval(NEWEST)


def test_the_instance_tree_has_versions_and_paths_of_its_own() -> None:
    response = ask(path="/metadata/instance", query=b"api-version=2021-02-01")
    assert response == GetInstance("2021-02-01", (), "json")
    response = ask(
        path="/Metadata/Instance/compute/Name", query=b"api-version=2021-02-01&format=TEXT"
    )
    assert response == GetInstance("2021-02-01", ("compute", "Name"), "text")
    response = ask(path="/metadata/instance", query=b"api-version=2020-07-01")
    assert isinstance(response, Problem)
    assert json.loads(response.body)["newest-versions"] == [
        "2025-04-07",
        "2024-07-17",
        "2024-03-15",
    ]


def test_the_list_of_versions_needs_the_header_and_no_version() -> None:
    assert ask(path="/metadata/versions", query=b"") == GetVersions()
    assert ask(path="/metadata/versions", query=b"", headers=()) == errors.NO_METADATA_HEADER


@given(
    st.sampled_from(["GET", "POST", "PUT", ""]),
    st.one_of(st.text(max_size=30), st.just(EVENTS)),
    st.binary(max_size=60),
    st.lists(st.tuples(st.sampled_from([b"metadata", b"x"]), st.binary(max_size=8)), max_size=3),
)
def test_any_request_is_read_or_a_problem(
    method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    response = read_metadata_request(method, path, query, headers)
    assert isinstance(response, GetDocument | PostApproval | GetInstance | GetVersions | Problem)


@pytest.mark.parametrize(
    ("header", "matches"),
    [
        ('"abc"', True),
        ("abc", True),
        ('W/"abc"', True),
        ("W/abc", True),
        ('"x", "abc"', True),
        ('"x","abc"', True),
        ('W/"x", W/"abc", "y"', True),
        (' "abc" ', True),
        ("", False),
        ("0", False),
        ('"0"', False),
        ("1", False),
        ('"ABC"', False),
        ('"abcd"', False),
        ('"x", "y"', False),
        (",,", False),
    ],
)
def test_a_tag_is_known_quoted_bare_weak_or_in_a_list(header: str, matches: bool) -> None:
    assert tag_matches(parse_tags(header), '"abc"') is matches


def test_a_list_of_tags_is_read_only_so_far() -> None:
    assert len(parse_tags(",".join(f'"{n}"' for n in range(10_000)))) == MAX_TAGS
    assert parse_tags('"*"') == frozenset()
