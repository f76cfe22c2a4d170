"""The two names of a scale set's member follow from each other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.client.identity import host_name, instance_name


def test_the_host_name_has_the_number_in_base_36() -> None:
    assert host_name("vmss_18") == "vmss00000i"
    assert host_name("aks-pool-1-vmss_862") == "aks-pool-1-vmss0000ny"
    assert host_name("web_18", prefix="node") == "node00000i"


def test_and_back_in_any_letter_case_with_another_prefix_and_a_domain() -> None:
    assert instance_name("vmss00000i", "vmss") == "vmss_18"
    assert instance_name("NODE00000I", "web") == "web_18"
    assert instance_name("node00000i.internal.test", "web") == "web_18"


@settings(max_examples=30)
@given(st.integers(0, 36**6 - 1))
def test_there_and_back(number: int) -> None:
    name = f"web-1_{number}"
    host = host_name(name)
    assert host is not None
    assert instance_name(host.upper(), "web-1") == name


@pytest.mark.parametrize(
    "name", ["vmss", "vmss_", "_1", "vmss_01", "vmss_-1", "vmss_x", "vmss_2176782336", "vmss_²", ""]
)
def test_what_is_no_members_name_has_no_host_name(name: str) -> None:
    assert host_name(name) is None


@pytest.mark.parametrize("name", ["", "00000i", "web-1", "web_00i", "wéb0000é1", ".x"])
def test_what_is_no_members_host_name_is_no_instances(name: str) -> None:
    assert instance_name(name, "vmss") is None
    assert instance_name("vmss00000i", "") is None
