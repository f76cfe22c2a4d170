"""The document's bytes: golden files for every version, published captures, and both ways."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.wire.document import Document, Event, Unreadable, etag, parse, render, shown
from forewarn.wire.versions import BY_NAME, NEWEST, VERSIONS, Version

GOLDEN = Path(__file__).parent / "golden"
KEYS = [
    "EventId",
    "EventStatus",
    "EventType",
    "ResourceType",
    "Resources",
    "NotBefore",
    "Description",
    "EventSource",
    "DurationInSeconds",
]
SHOWN_KEYS = {
    "2017-03-01": 6,
    "2017-08-01": 6,
    "2017-11-01": 6,
    "2019-01-01": 6,
    "2019-04-01": 7,
    "2019-08-01": 8,
    "2020-07-01": 9,
}

# The events of the golden files as the wire floor holds them, names not yet in any dialect.
EVENTS = {
    "Freeze": (
        192,
        Event(
            id="28512AF7-C957-4500-9BC4-842D6FB531E4",
            status="Scheduled",
            type="Freeze",
            resources=("web_0", "web_2"),
            not_before=1474309787,
            description="Virtual machine is being paused because of a memory-preserving"
            " Live Migration operation.",
            source="Platform",
            duration=5,
        ),
    ),
    "Reboot": (
        7,
        Event(
            id="FE88BA46-96D4-432E-8AED-89A0F0E52D99",
            status="Scheduled",
            type="Reboot",
            resources=("sample_4",),
            not_before=1516828844,
            description="Virtual machine is going to be restarted as requested by authorized user.",
            source="User",
            duration=-1,
        ),
    ),
    "Redeploy": (
        1,
        Event(
            id="602D9444-D2CD-49C7-8624-8643E7171297",
            status="Scheduled",
            type="Redeploy",
            resources=("sql-1",),
            not_before=1709164800,
            description="Virtual machine has encountered a failure.",
            source="Platform",
            duration=0,
        ),
    ),
    "Preempt": (
        2147483648,
        Event(
            id="C7061BAC-AFDC-4513-B24B-AA5F13A16123",
            status="Scheduled",
            type="Preempt",
            resources=("aks-spotcpu2m8-23666972-vmss_862",),
            not_before=1688162416,
            description="",
            source="Platform",
            duration=-1,
        ),
    ),
    "Terminate": (
        3,
        Event(
            id="00000000-0000-4000-8000-000000000001",
            status="Scheduled",
            type="Terminate",
            resources=("web_1",),
            not_before=1796461687,
            description="",
            source="Platform",
            duration=-1,
        ),
    ),
}
CAPTURES = {
    "capture-2018.json": (
        "2019-01-01",
        Document(
            192,
            (
                Event(
                    id="28512AF7-C957-4500-9BC4-842D6FB531E4",
                    status="Scheduled",
                    type="Reboot",
                    resources=("sample_4",),
                    not_before=1516828844,
                ),
            ),
        ),
    ),
    "capture-2023.json": (
        "2020-07-01",
        Document(
            7,
            (
                Event(
                    id="FE88BA46-96D4-432E-8AED-89A0F0E52D99",
                    status="Scheduled",
                    type="Freeze",
                    resources=("aks-spotcpu2m8-23666972-vmss_862",),
                    not_before=1688162416,
                    description="",
                    source="Platform",
                    duration=30,
                ),
            ),
        ),
    ),
}


def in_dialect(type: str, status: str, version: Version) -> Document:
    incarnation, event = EVENTS[type]
    return Document(
        incarnation,
        (
            msgspec.structs.replace(
                event,
                status=status,
                resources=tuple(version.resource(name, iaas=True) for name in event.resources),
                not_before=event.not_before if status == "Scheduled" else None,
            ),
        ),
    )


ROWS = [
    (version, status, type)
    for version in VERSIONS
    for status in ("Scheduled", "Started")
    for type in version.types
]
NAMES = [f"{version.name}.{status}.{type}.json" for version, status, type in ROWS]


def test_golden_files_agree_with_the_table_of_versions() -> None:
    derived = runpy.run_path(str(GOLDEN / "make_golden.py"))["golden"]()
    found = {path.name: path.read_bytes() for path in GOLDEN.glob("*.json")}
    captures = {name: found.pop(name) for name in CAPTURES}
    assert found == derived
    assert sorted(derived) == sorted(NAMES)
    assert len(captures) == 2


@pytest.mark.parametrize(("version", "status", "type"), ROWS, ids=NAMES)
def test_an_event_is_rendered_as_in_its_golden_file(
    version: Version, status: str, type: str
) -> None:
    golden = (GOLDEN / f"{version.name}.{status}.{type}.json").read_bytes()
    assert render(in_dialect(type, status, version), version) == golden


@pytest.mark.parametrize(("version", "status", "type"), ROWS, ids=NAMES)
def test_a_golden_file_is_read_as_what_its_version_shows(
    version: Version, status: str, type: str
) -> None:
    golden = (GOLDEN / f"{version.name}.{status}.{type}.json").read_bytes()
    document = parse(golden, version)
    assert document == shown(in_dialect(type, status, version), version)
    assert render(document, version) == golden


@pytest.mark.parametrize("name", CAPTURES)
def test_published_captures_are_reproduced_byte_for_byte(name: str) -> None:
    version, document = BY_NAME[CAPTURES[name][0]], CAPTURES[name][1]
    capture = (GOLDEN / name).read_bytes()
    assert render(document, version) == capture
    assert parse(capture, version) == document


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_type_the_version_does_not_know_is_not_listed(version: Version) -> None:
    document = Document(9, tuple(event for _, event in EVENTS.values()))
    listed = [event["EventType"] for event in json.loads(render(document, version))["Events"]]
    assert listed == [type for type in EVENTS if type in version.types]


def test_the_first_document_of_a_group_is_empty() -> None:
    for version in VERSIONS:
        assert render(Document(1), version) == b'{"DocumentIncarnation":1,"Events":[]}'


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@st.composite
def events(draw: st.DrawFn) -> Event:
    status = draw(st.sampled_from(["Scheduled", "Started"]))
    instant = st.integers(0, 253402300799)
    return Event(
        id=draw(st.uuids().map(lambda id: str(id).upper())),
        status=status,
        type=draw(st.sampled_from(list(EVENTS))),
        resources=tuple(draw(st.lists(texts, min_size=1, max_size=4))),
        not_before=draw(instant) if status == "Scheduled" else None,
        description=draw(texts),
        source=draw(st.sampled_from(["Platform", "User"])),
        duration=draw(st.integers(-1, 86_400)),
    )


documents = st.builds(
    Document, st.integers(1, 2**63 - 1), st.lists(events(), max_size=4).map(tuple)
)


@given(documents, st.sampled_from(VERSIONS))
def test_reading_what_was_written_gives_what_the_version_shows(
    document: Document, version: Version
) -> None:
    assert parse(render(document, version), version) == shown(document, version)


@given(documents, st.sampled_from(VERSIONS))
def test_the_keys_are_these_in_this_order_and_no_others(
    document: Document, version: Version
) -> None:
    body = render(document, version)
    read = json.loads(body)
    assert list(read) == ["DocumentIncarnation", "Events"]
    for event in read["Events"]:
        assert list(event) == KEYS[: SHOWN_KEYS[version.name]]
        assert None not in event.values()
        assert event["ResourceType"] == "VirtualMachine"
        assert isinstance(event["NotBefore"], str)
    assert body == json.dumps(read, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"Throttle Result: Too Many Requests",
        b'{"DocumentIncarnation":1}',
        b'{"DocumentIncarnation":"1","Events":[]}',
        b'{"DocumentIncarnation":1,"Events":null}',
        b'{"DocumentIncarnation":1,"Events":[{}]}',
        b'{"DocumentIncarnation":1,"Events":[]',
        b'{"DocumentIncarnation":1,"Events":[]}x',
        (GOLDEN / "2020-07-01.Scheduled.Freeze.json").read_bytes()[:-20],
        (GOLDEN / "2020-07-01.Scheduled.Freeze.json").read_bytes().replace(b"GMT", b"UTC"),
        (GOLDEN / "2020-07-01.Scheduled.Freeze.json").read_bytes().replace(b"Mon", b"Tue"),
        (GOLDEN / "2020-07-01.Scheduled.Freeze.json").read_bytes().replace(b"web_0", b"we\nb"),
        (GOLDEN / "2020-07-01.Scheduled.Freeze.json").read_bytes().replace(b"web_0", b"\xff"),
        (GOLDEN / "2017-03-01.Scheduled.Freeze.json").read_bytes(),
    ],
)
def test_an_invalid_document_of_the_version_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        parse(body, NEWEST)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_unreadable(body: bytes) -> None:
    try:
        assert isinstance(parse(body, NEWEST), Document)
    except Unreadable:
        return


def test_an_etag_is_quoted_and_depends_on_the_bytes() -> None:
    one, other = (render(Document(1, (event,)), NEWEST) for _, event in list(EVENTS.values())[:2])
    assert etag(one) == etag(bytes(one))
    assert etag(one) != etag(other), "two documents of one incarnation have tags of their own"
    inner = etag(one)[1:-1]
    assert etag(one) == f'"{inner}"'
    assert inner.isalnum()
    assert inner != "0", "a client's first If-None-Match is 0"
