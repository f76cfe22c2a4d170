"""Requests beside the wire: what they ask for, what is wrong with them, and what they are told."""

from __future__ import annotations

import itertools
import json
from urllib.parse import unquote_to_bytes

import pytest

from forewarn.wire import errors, requests
from forewarn.wire.errors import Problem
from forewarn.wire.extensions import (
    DEFAULT_WAIT,
    MAX_TIMEOUT,
    MAX_WAIT,
    POSTPONE,
    READY,
    WAIT,
    GetReadiness,
    PutPostponement,
    PutReadiness,
    Readiness,
    ReadinessReport,
    ReadyMachine,
    Wait,
    read_postponement,
    read_readiness,
    render,
)
from forewarn.wire.headers import tag_matches
from forewarn.wire.versions import BY_NAME, NEWEST

METADATA = (b"metadata", b"true")
ID = "28512AF7-C957-4500-9BC4-842D6FB531E4"
NOBODY: frozenset[str] = frozenset()


def ask(
    method: str = "GET",
    path: str = WAIT,
    query: bytes = b"",
    headers: tuple[tuple[bytes, bytes], ...] = (METADATA,),
) -> requests.Request | Problem:
    return requests.read_request(method, path, query, headers)


def wait(query: bytes, *headers: tuple[bytes, bytes]) -> Wait:
    response = ask(query=query, headers=(METADATA, *headers))
    assert isinstance(response, Wait)
    return response


def test_without_parameters_a_wait_is_for_any_document_of_the_newest_version() -> None:
    assert ask() == Wait(NEWEST, NOBODY, DEFAULT_WAIT)


@pytest.mark.parametrize("path", ["/Forewarn/V1/Wait", "/forewarn/v1/wait/", WAIT])
def test_the_path_is_found_in_any_letter_case(path: str) -> None:
    assert isinstance(ask(path=path), Wait)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_version_may_be_named(name: str) -> None:
    assert wait(f"api-version={name}".encode()).version.name == name


@pytest.mark.parametrize("name", ["latest", "", "2021-12-13"])
def test_an_unknown_version_is_refused_as_on_the_endpoint(name: str) -> None:
    refused = requests.read_request(
        "GET", "/metadata/scheduledevents", b"api-version=no", (METADATA,)
    )
    assert ask(query=f"api-version={name}".encode()) == refused


@pytest.mark.parametrize("query", [b"etag=%22ab%22", b"etag=ab", b'etag=W/"ab"', b"etag=0,%20ab"])
def test_a_tag_is_quoted_or_bare_or_weak_or_in_a_list(query: bytes) -> None:
    assert tag_matches(wait(query).tags, '"ab"')
    header = (b"if-none-match", unquote_to_bytes(query.removeprefix(b"etag=")))
    assert tag_matches(wait(b"", header).tags, '"ab"')


def test_tags_in_the_query_and_in_the_header_are_both_known() -> None:
    assert wait(b"etag=a", (b"if-none-match", b'"b"')).tags == {"a", "b"}


def test_an_empty_tag_is_none() -> None:
    assert wait(b"etag=").tags == NOBODY


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("30", 30),
        ("2.5", 2.5),
        ("30s", 30),
        ("1m30s", 90),
        ("2m", 120),
        ("5min", 300),
        ("PT5M", 300),
        ("pt1m0.5s", 60.5),
        ("%2030%20", 30),
    ],
)
def test_a_timeout_is_a_number_of_seconds_or_a_duration(text: str, seconds: float) -> None:
    assert wait(f"timeout={text}".encode()).timeout == seconds


@pytest.mark.parametrize("text", ["301", "1h", "PT24H", "9" * MAX_TIMEOUT])
def test_a_timeout_is_cut_to_the_longest_wait(text: str) -> None:
    assert wait(f"timeout={text}".encode()).timeout == MAX_WAIT


@pytest.mark.parametrize(
    "text",
    ["", "-1", "soon", "s", "PT", "1e3", "nan", "inf", "30 s", "1s1m", "%EF%BC%92", "9" * 41],
)
def test_any_other_timeout_is_refused(text: str) -> None:
    assert ask(query=f"timeout={text}".encode()) == errors.BAD_TIMEOUT


@pytest.mark.parametrize("id", [ID, ID.lower()])
def test_readiness_is_read_and_set_by_event(id: str) -> None:
    assert ask("GET", f"{READY}/{id}") == GetReadiness(ID)
    assert ask("PUT", f"{READY}/{id}") == PutReadiness(ID)
    assert ask("PUT", f"/FOREWARN/v1/Ready/{id}/") == PutReadiness(ID)


@pytest.mark.parametrize("id", [ID, ID.lower()])
def test_an_event_is_postponed_by_its_id(id: str) -> None:
    assert ask("PUT", f"{POSTPONE}/{id}") == PutPostponement(ID)
    assert ask("PUT", f"/FOREWARN/v1/Postpone/{id}/") == PutPostponement(ID)


@pytest.mark.parametrize(
    "path",
    [
        "/forewarn",
        "/forewarn/v1",
        "/forewarn/v2/wait",
        "/forewarn/v1/waits",
        "/forewarn/v1/wait/x",
        READY,
        f"{READY}/",
        f"{READY}/{ID}/x",
        POSTPONE,
        f"{POSTPONE}/{ID}/x",
        "/metadata/wait",
        "//forewarn/v1/wait",
    ],
)
def test_other_paths_do_not_exist(path: str) -> None:
    for method in ("GET", "PUT", "POST"):
        assert ask(method, path) == errors.NOT_FOUND


def test_requests_of_the_wire_contract_are_read_unchanged() -> None:
    path, query = "/metadata/scheduledevents", b"api-version=2020-07-01"
    assert ask(path=path, query=query) == requests.GetDocument(NEWEST)
    assert ask("PUT", path, query) == errors.method_not_allowed("GET, POST")


@pytest.mark.parametrize(
    ("path", "method", "allow"),
    [
        (WAIT, "PUT", "GET"),
        (WAIT, "HEAD", "GET"),
        (f"{READY}/{ID}", "POST", "GET, PUT"),
        (f"{READY}/{ID}", "HEAD", "GET, PUT"),
        (f"{READY}/{ID}", "DELETE", "GET, PUT"),
        (f"{POSTPONE}/{ID}", "GET", "PUT"),
    ],
)
def test_a_wrong_method_is_answered_with_the_allowed_ones(
    path: str, method: str, allow: str
) -> None:
    assert ask(method, path) == errors.method_not_allowed(allow)


WRONGS: list[Problem] = [
    errors.method_not_allowed("GET"),
    errors.FORWARDED,
    errors.NO_METADATA_HEADER,
    errors.DUPLICATE_PARAMETER,
    errors.bad_version([*BY_NAME]),
    errors.BAD_TIMEOUT,
]


@pytest.mark.parametrize("first", range(len(WRONGS)))
def test_of_several_mistakes_the_first_in_the_order_of_checks_is_answered(first: int) -> None:
    later = range(first + 1, len(WRONGS))
    for size in range(len(later) + 1):
        for others in itertools.combinations(later, size):
            wrong = {first, *others}
            query = ["a=1"]
            query += ["a=2"] if 3 in wrong else []
            query += ["api-version=no"] if 4 in wrong else []
            query += ["timeout=no"] if 5 in wrong else []
            headers = [] if 2 in wrong else [METADATA]
            headers += [(b"x-forwarded-for", b"10.0.0.1")] if 1 in wrong else []
            method = "PATCH" if 0 in wrong else "GET"
            response = ask(method, query="&".join(query).encode(), headers=tuple(headers))
            assert response == WRONGS[first]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", ReadinessReport(True, "")),
        (b"{}", ReadinessReport(True, "")),
        (b'{"ready":true}', ReadinessReport(True, "")),
        (b'{ "ready": false }', ReadinessReport(False, "")),
        (b'{"note":"drained"}', ReadinessReport(True, "drained")),
        (b'\xef\xbb\xbf{"ready":true,"note":"\xc3\xa4","more":[1]}', ReadinessReport(True, "ä")),
        (b'{"more":[1e400]}', ReadinessReport(True, "")),
    ],
)
def test_a_readiness_report_is_empty_or_an_object(body: bytes, word: ReadinessReport) -> None:
    assert read_readiness(body, 10) == word


@pytest.mark.parametrize("body", [b" ", b"yes", b"{", b'{"note":"\\ud800"}', b"\xff", b"[" * 9_999])
def test_a_readiness_report_that_is_not_json_is_refused(body: bytes) -> None:
    assert read_readiness(body, 10) == errors.NOT_JSON


@pytest.mark.parametrize(
    "body", [b"true", b"[]", b"null", b'{"ready":1}', b'{"ready":"true"}', b'{"note":null}']
)
def test_a_readiness_report_of_another_shape_is_refused(body: bytes) -> None:
    assert read_readiness(body, 10) == errors.BAD_READINESS


def test_a_too_long_note_is_refused() -> None:
    assert read_readiness(json.dumps({"note": "ä" * 10}).encode(), 10) == ReadinessReport(
        True, "ä" * 10
    )
    problem = read_readiness(json.dumps({"note": "ä" * 11}).encode(), 10)
    assert isinstance(problem, Problem)
    assert problem.status == 400
    assert "10 characters" in json.loads(problem.body)["error"]


@pytest.mark.parametrize("until", ["2027-01-15T08:00:00Z", "Fri, 15 Jan 2027 08:00:00 GMT"])
def test_an_event_is_postponed_until_a_time_as_documents_have_it(until: str) -> None:
    assert read_postponement(json.dumps({"until": until}).encode()) == 1_800_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"until":5}',
        b'{"until":"2027-01-15T08:00:00"}',
        b'{"until":"2027-02-31T08:00:00Z"}',
        b'{"until":"tomorrow"}',
        b"[" * 9_999,
    ],
)
def test_a_postponement_in_any_other_form_is_refused(body: bytes) -> None:
    assert read_postponement(body) == errors.BAD_POSTPONEMENT


def test_readiness_is_compact_and_its_keys_have_one_order() -> None:
    ready = ReadyMachine("web_0", "Fri, 15 Jan 2027 08:00:00 GMT", 'said "go"')
    assert render(Readiness(ID, (ready,), ("web_1",))) == (
        b'{"EventId":"28512AF7-C957-4500-9BC4-842D6FB531E4","Ready":[{"Machine":"web_0",'
        b'"At":"Fri, 15 Jan 2027 08:00:00 GMT","Note":"said \\"go\\""}],"Waiting":["web_1"]}'
    )
    assert render(Readiness(ID, (), ())) == f'{{"EventId":"{ID}","Ready":[],"Waiting":[]}}'.encode()
