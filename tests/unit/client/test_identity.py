"""A machine knows itself by the name that the service gives it, and by no other."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.client import identity
from forewarn.client.identity import Identity, host_name, instance_name
from forewarn.wire.instance import INSTANCE_VERSIONS, Facts, InstanceBody, answer
from helpers.examples import examples

FACTS = Facts(
    name="web_18",
    vm_id="d5b3-1",
    scale_set="web",
    computer_name="web00000i",
    resource_group="fleet",
    subscription_id="8d10",
    location="north",
    zone="2",
    update_domain=3,
    fault_domain=1,
    spot=True,
    placement_group_id="f67c",
    tags=(("tier", "web"), ("url", "http://a:80/"), ("empty", "")),
)
SELF = Identity(
    name="web_18",
    vm_id="d5b3-1",
    scale_set="web",
    host_name="web00000i",
    resource_group="fleet",
    subscription_id="8d10",
    location="north",
    zone="2",
    update_domain=3,
    fault_domain=1,
    priority="Spot",
    placement_group="f67c",
    tags=(("tier", "web"), ("url", "http://a:80/"), ("empty", "")),
)


def document(version: str, path: tuple[str, ...] = ("compute",)) -> bytes:
    found = answer(FACTS, version, path, "json")
    assert isinstance(found, InstanceBody)
    return found.body


def test_the_identity_is_read_from_the_first_version_asked_for() -> None:
    assert identity.parse_identity(document(identity.VERSIONS[0])) == SELF
    assert identity.parse_identity(document(identity.VERSIONS[0], ())) == SELF


@pytest.mark.parametrize("version", identity.VERSIONS)
def test_every_version_that_is_asked_for_exists_and_tells_the_name_and_the_tags(
    version: str,
) -> None:
    assert version in INSTANCE_VERSIONS
    found = identity.parse_identity(document(version))
    assert found is not None
    assert (found.name, found.tags) == (SELF.name, SELF.tags)
    assert identity.target(version).endswith(f"?api-version={version}&format=json")


def test_versions_are_tried_from_the_newest_down() -> None:
    assert list(identity.VERSIONS) == sorted(identity.VERSIONS, reverse=True)


@pytest.mark.parametrize(
    ("resource", "me"),
    [
        ("web_18", True),
        ("_web_18", True),  # as the preview lists it
        ("__web_18", False),
        ("web00000i", False),  # a host name is no name
        ("WEB_18", False),
        ("web_1", False),
        ("", False),
    ],
)
def test_an_event_names_this_machine_exactly_or_not_at_all(resource: str, me: bool) -> None:
    assert SELF.matches(resource) is me


@pytest.mark.parametrize(
    ("line", "tags"),
    [
        ("a:b;c:d", (("a", "b"), ("c", "d"))),
        ("when:10:30;c:", (("when", "10:30"), ("c", ""))),
        ("note:x;y;c:d", (("note", "x;y"), ("c", "d"))),
        ("", ()),
        (";;:x;a:b", (("a", "b"),)),
    ],
)
def test_tags_in_one_text_are_read(line: str, tags: tuple[tuple[str, str], ...]) -> None:
    found = identity.parse_identity(b'{"name":"a","tags":"%s"}' % line.encode())
    assert found is not None
    assert found.tags == tags


def test_raw_control_characters_are_forgiven() -> None:
    found = identity.parse_identity(
        b'\xef\xbb\xbf{"name":"a","location":"x\ty\xff","platformUpdateDomain":2}'
    )
    assert found == Identity(name="a", location="x y\ufffd", update_domain=2)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"name":""}', b'{"name":7}', b"[" * 99_999])
def test_without_a_name_there_is_no_identity(body: bytes) -> None:
    assert identity.parse_identity(body) is None


_LEAF = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
_VALUE = _LEAF | st.lists(_LEAF) | st.lists(st.dictionaries(st.just("name"), _LEAF))
_KEYS = st.sampled_from(["name", "tags", "tagsList", "osProfile", "platformFaultDomain", "compute"])


@settings(max_examples=examples(30))
@given(st.dictionaries(_KEYS, _VALUE))
def test_any_answer_is_read_or_refused(response: dict[str, object]) -> None:
    found = identity.parse_identity(msgspec.json.encode(response))
    assert found is None or found.name


# The two names of a scale set's member follow from each other


def test_the_host_name_has_the_number_in_base_36() -> None:
    assert host_name("vmss_18") == "vmss00000i"
    assert host_name("aks-pool-1-vmss_862") == "aks-pool-1-vmss0000ny"
    assert host_name("web_18", prefix="node") == "node00000i"


def test_a_host_name_gives_the_instance_in_any_letter_case_and_with_a_domain() -> None:
    assert instance_name("vmss00000i", "vmss") == "vmss_18"
    assert instance_name("NODE00000I", "web") == "web_18"
    assert instance_name("node00000i.internal.test", "web") == "web_18"


@settings(max_examples=examples(30))
@given(st.integers(0, 36**6 - 1))
def test_instance_names_and_host_names_convert_both_ways(number: int) -> None:
    name = f"web-1_{number}"
    host = host_name(name)
    assert host is not None
    assert instance_name(host.upper(), "web-1") == name


@pytest.mark.parametrize(
    "name", ["vmss", "vmss_", "_1", "vmss_01", "vmss_-1", "vmss_x", "vmss_2176782336", "vmss_²", ""]
)
def test_other_machine_names_have_no_host_name(name: str) -> None:
    assert host_name(name) is None


@pytest.mark.parametrize("name", ["", "00000i", "web-1", "web_00i", "wéb0000é1", ".x"])
def test_other_host_names_have_no_instance(name: str) -> None:
    assert instance_name(name, "vmss") is None
    assert instance_name("vmss00000i", "") is None
