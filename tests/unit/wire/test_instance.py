"""The instance tree: what each version shows, what a path finds, how it is written."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.wire.instance import (
    INSTANCE_VERSIONS,
    Facts,
    InstanceAnswer,
    InstanceBody,
    NeedsText,
    Node,
    NoSuchElement,
    answer,
    host_name_of,
    instance_of,
    tree,
    versions_body,
)
from forewarn.wire.instance_fields import FIELDS

NEWEST = INSTANCE_VERSIONS[-1]

MEMBER = Facts(
    name="web-vmss_18",
    vm_id="9b1f2f0e-6c0f-4c55-8a41-2f6f6cf0a1d7",
    computer_name="web-vmss00000i",
    location="northland",
    zone="2",
    physical_zone="northland-az1",
    resource_group="shop",
    subscription_id="11111111-2222-4333-8444-555555555555",
    scale_set="web-vmss",
    placement_group_id="0f0e0d0c-0b0a-4908-8706-050403020100",
    update_domain=3,
    fault_domain=1,
    tags=(("team", "shop"), ("version", "Kubernetes:1.30")),
    vm_size="Standard_D2s_v5",
    admin_username="ops",
    image_publisher="Example",
    image_offer="server",
    image_sku="24.04",
    image_version="24.04.7",
    mac_address="00:0d:3a:be:51:d2",
    private_ipv4=("10.1.5.4", "10.1.5.5"),
    public_ipv4=("192.0.2.7",),
    private_ipv6=("2001:db8::4",),
    subnet="10.1.5.0/24",
)
ALONE = Facts(name="db")


def text(response: InstanceAnswer) -> str:
    assert isinstance(response, InstanceBody)
    assert response.content_type == "text/plain; charset=utf-8"
    return response.body.decode()


def read(facts: Facts, path: str, version: str = NEWEST) -> str:
    return text(answer(facts, version, path.split("/"), "text"))


def whole(facts: Facts, version: str) -> str:
    response = answer(facts, version, (), "json")
    assert isinstance(response, InstanceBody)
    assert response.content_type == "application/json; charset=utf-8"
    return response.body.decode()


def leaves(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(node, str):
        yield path, node
    else:
        for name, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(child, (*path, str(name)))


def branches(node: Node) -> Iterator[dict[str, Node]]:
    if isinstance(node, dict):
        yield node
    if not isinstance(node, str):
        for child in node.values() if isinstance(node, dict) else node:
            yield from branches(child)


# --- the whole tree ---------------------------------------------------------------------------

PUBLISHED_SHAPES = {
    "2017-03-01": '{"compute":{"location":"northland","name":"web-vmss_18","offer":"server",'
    '"osType":"Linux","platformFaultDomain":"1","platformUpdateDomain":"3",'
    '"publisher":"Example","sku":"24.04","version":"24.04.7",'
    '"vmId":"9b1f2f0e-6c0f-4c55-8a41-2f6f6cf0a1d7","vmSize":"Standard_D2s_v5"},'
    '"network":{"interface":[{"ipv4":{"ipaddress":['
    '{"ipaddress":"10.1.5.4","publicip":"192.0.2.7"},{"ipaddress":"10.1.5.5","publicip":""}],'
    '"subnet":[{"address":"10.1.5.0","dnsservers":[],"prefix":"24"}]},'
    '"ipv6":{"ipaddress":[{"ipaddress":"2001:db8::4"}]},"mac":"000D3ABE51D2"}]}}',
    "2017-08-01": '{"compute":{"location":"northland","name":"web-vmss_18","offer":"server",'
    '"osType":"Linux","placementGroupId":"0f0e0d0c-0b0a-4908-8706-050403020100",'
    '"platformFaultDomain":"1","platformUpdateDomain":"3","publisher":"Example",'
    '"resourceGroupName":"shop","sku":"24.04",'
    '"subscriptionId":"11111111-2222-4333-8444-555555555555",'
    '"tags":"team:shop;version:Kubernetes:1.30","version":"24.04.7",'
    '"vmId":"9b1f2f0e-6c0f-4c55-8a41-2f6f6cf0a1d7","vmSize":"Standard_D2s_v5"},'
    '"network":{"interface":[{"ipv4":{"ipAddress":['
    '{"privateIpAddress":"10.1.5.4","publicIpAddress":"192.0.2.7"},'
    '{"privateIpAddress":"10.1.5.5","publicIpAddress":""}],'
    '"subnet":[{"address":"10.1.5.0","prefix":"24"}]},'
    '"ipv6":{"ipAddress":[{"privateIpAddress":"2001:db8::4"}]},"macAddress":"000D3ABE51D2"}]}}',
}


@pytest.mark.parametrize("version", PUBLISHED_SHAPES)
def test_the_tree_is_written_as_the_version_was_published(version: str) -> None:
    assert whole(MEMBER, version) == PUBLISHED_SHAPES[version]


def test_a_machine_of_which_only_the_name_is_known_keeps_every_element() -> None:
    assert whole(ALONE, "2021-12-13") == (
        '{"compute":{"additionalCapabilities":{"hibernationEnabled":"false"},'
        '"azEnvironment":"AzurePublicCloud","customData":"","evictionPolicy":"",'
        '"extendedLocation":{"name":"","type":""},"host":{"id":""},"hostGroup":{"id":""},'
        '"isHostCompatibilityLayerVm":"false","licenseType":"","location":"","name":"db",'
        '"offer":"","osProfile":{"adminUsername":"","computerName":"",'
        '"disablePasswordAuthentication":""},"osType":"Linux","placementGroupId":"",'
        '"plan":{"name":"","product":"","publisher":""},"platformFaultDomain":"0",'
        '"platformSubFaultDomain":"","platformUpdateDomain":"0","priority":"",'
        '"provider":"Microsoft.Compute","publicKeys":[],"publisher":"","resourceGroupName":"",'
        '"resourceId":"","securityProfile":{"encryptionAtHost":"false",'
        '"secureBootEnabled":"false","securityType":"","virtualTpmEnabled":"false"},"sku":"",'
        '"storageProfile":{"dataDisks":[],"imageReference":{"id":"","offer":"","publisher":"",'
        '"sku":"","version":""},"osDisk":{"caching":"","createOption":"",'
        '"diffDiskSettings":{"option":""},"diskSizeGB":"","encryptionSettings":{'
        '"diskEncryptionKey":{"secretUrl":"","sourceVault":{"id":""}},"enabled":"false",'
        '"keyEncryptionKey":{"keyUrl":"","sourceVault":{"id":""}}},"image":{"uri":""},'
        '"managedDisk":{"id":"","storageAccountType":""},"name":"","osType":"Linux",'
        '"vhd":{"uri":""},"writeAcceleratorEnabled":"false"},"resourceDisk":{"size":"0"}},'
        '"subscriptionId":"","tags":"","tagsList":[],"userData":"","version":"",'
        '"virtualMachineScaleSet":{"id":""},"vmId":"","vmScaleSetName":"","vmSize":"",'
        '"zone":""},"network":{"interface":[]}}'
    )


@pytest.mark.parametrize("version", INSTANCE_VERSIONS)
def test_keys_ascend_at_every_level_and_differ_in_more_than_letter_case(version: str) -> None:
    for branch in branches(tree(MEMBER, version)):
        assert list(branch) == sorted(branch)
        assert len({name.lower() for name in branch}) == len(branch)


# --- the values clients read ------------------------------------------------------------------

GROUP = "/subscriptions/11111111-2222-4333-8444-555555555555/resourceGroups/shop"
SCALE_SETS = f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets"
SPOT = Facts(name="cheap", spot=True)
KEPT_SPOT = Facts(name="cheap", spot=True, eviction_policy="Deallocate")
FLEXIBLE = Facts(
    name="web_1a2b3c4d",
    scale_set="web",
    resource_group="shop",
    subscription_id="11111111-2222-4333-8444-555555555555",
)


@pytest.mark.parametrize(
    ("facts", "path", "value"),
    [
        (MEMBER, "compute/name", "web-vmss_18"),
        (MEMBER, "compute/vmId", "9b1f2f0e-6c0f-4c55-8a41-2f6f6cf0a1d7"),
        (MEMBER, "compute/osProfile/computerName", "web-vmss00000i"),
        (MEMBER, "compute/vmScaleSetName", "web-vmss"),
        (MEMBER, "compute/placementGroupId", "0f0e0d0c-0b0a-4908-8706-050403020100"),
        (MEMBER, "compute/platformUpdateDomain", "3"),
        (MEMBER, "compute/platformFaultDomain", "1"),
        (ALONE, "compute/platformUpdateDomain", "0"),
        (MEMBER, "compute/location", "northland"),
        (MEMBER, "compute/zone", "2"),
        (MEMBER, "compute/physicalZone", "northland-az1"),
        (MEMBER, "compute/priority", ""),
        (MEMBER, "compute/evictionPolicy", ""),
        (SPOT, "compute/priority", "Spot"),
        (SPOT, "compute/evictionPolicy", "Delete"),
        (KEPT_SPOT, "compute/evictionPolicy", "Deallocate"),
        (MEMBER, "compute/tags", "team:shop;version:Kubernetes:1.30"),
        (MEMBER, "compute/tagsList/1/name", "version"),
        (MEMBER, "compute/tagsList/1/value", "Kubernetes:1.30"),
        (ALONE, "compute/resourceId", ""),
        (MEMBER, "compute/resourceId", f"{SCALE_SETS}/web-vmss/virtualMachines/18"),
        (MEMBER, "compute/virtualMachineScaleSet/id", ""),
        (
            FLEXIBLE,
            "compute/resourceId",
            f"{GROUP}/providers/Microsoft.Compute/virtualMachines/web_1a2b3c4d",
        ),
        (FLEXIBLE, "compute/virtualMachineScaleSet/id", f"{SCALE_SETS}/web"),
        (MEMBER, "network/interface/0/ipv4/ipAddress/0/privateIpAddress", "10.1.5.4"),
        (MEMBER, "network/interface/0/ipv4/ipAddress/0/publicIpAddress", "192.0.2.7"),
        (MEMBER, "network/interface/0/ipv4/subnet/0/prefix", "24"),
        (MEMBER, "network/interface/0/macAddress", "000D3ABE51D2"),
    ],
)
def test_values_are_found_by_their_path(facts: Facts, path: str, value: str) -> None:
    assert read(facts, path) == value


@pytest.mark.parametrize(
    ("path", "since"),
    [
        ("compute/resourceGroupName", "2017-08-01"),
        ("compute/vmScaleSetName", "2017-12-01"),
        ("compute/zone", "2017-12-01"),
        ("compute/plan/name", "2018-04-02"),
        ("compute/azEnvironment", "2018-10-01"),
        ("compute/resourceId", "2019-03-11"),
        ("compute/storageProfile/osDisk/osType", "2019-06-01"),
        ("compute/tagsList", "2019-06-04"),
        ("compute/osProfile/computerName", "2020-07-15"),
        ("compute/priority", "2020-12-01"),
        ("compute/evictionPolicy", "2020-12-01"),
        ("compute/storageProfile/resourceDisk/size", "2021-02-01"),
        ("compute/securityProfile/securityType", "2021-12-13"),
        ("compute/physicalZone", "2023-11-15"),
        ("network/interface/0/macAddress", "2017-04-02"),
    ],
)
def test_a_field_is_there_from_its_version_on_and_not_before(path: str, since: str) -> None:
    shown = [v for v in INSTANCE_VERSIONS if answer(MEMBER, v, path.split("/"), "text") != NONE]
    assert shown == [v for v in INSTANCE_VERSIONS if v >= since]


def test_every_row_came_in_a_version_that_exists() -> None:
    assert {field.since for field in FIELDS} <= set(INSTANCE_VERSIONS)


# --- paths and formats ------------------------------------------------------------------------

NONE = NoSuchElement()


@pytest.mark.parametrize("path", ["nothing", "compute/nothing", "compute/name/on", "compute//name"])
@pytest.mark.parametrize("format", ["json", "text"])
def test_an_unknown_element_is_not_found(path: str, format: str) -> None:
    assert answer(MEMBER, NEWEST, path.split("/"), format) == NONE


@pytest.mark.parametrize("index", ["1", "-1", "00", "+0", "٠", "first", "9" * 6000])
def test_only_an_index_in_range_and_in_plain_digits_finds_an_item(index: str) -> None:
    assert answer(MEMBER, NEWEST, ("network", "interface", index), "json") == NONE


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("compute/plan", {"name": "", "product": "", "publisher": ""}),
        ("COMPUTE/Plan", {"name": "", "product": "", "publisher": ""}),
        ("compute/plan/", {"name": "", "product": "", "publisher": ""}),
        ("network/interface/0/ipv4/subnet", [{"address": "10.1.5.0", "prefix": "24"}]),
        ("network/interface/0/ipv4/subnet/0", {"address": "10.1.5.0", "prefix": "24"}),
        ("compute/publicKeys", []),
    ],
)
@pytest.mark.parametrize("format", ["json", "", "xml"])
def test_a_branch_is_answered_as_json(path: str, body: object, format: str) -> None:
    response = answer(MEMBER, NEWEST, path.split("/"), format)
    assert isinstance(response, InstanceBody)
    assert json.loads(response.body) == body


@pytest.mark.parametrize("path", ["", "compute"])
def test_a_trailing_slash_changes_nothing(path: str) -> None:
    elements = path.split("/") if path else []
    with_slash = answer(MEMBER, NEWEST, [*elements, ""], "json")
    assert with_slash == answer(MEMBER, NEWEST, elements, "json")


@pytest.mark.parametrize("format", ["json", "", "xml"])
def test_a_leaf_needs_text(format: str) -> None:
    assert answer(MEMBER, NEWEST, ("compute", "name"), format) == NeedsText()


@pytest.mark.parametrize("path", ["compute/name", "Compute/Name", "compute/NAME"])
@pytest.mark.parametrize("format", ["text", "Text"])
def test_names_and_format_are_taken_in_any_letter_case(path: str, format: str) -> None:
    assert text(answer(MEMBER, NEWEST, path.split("/"), format)) == "web-vmss_18"


@pytest.mark.parametrize(
    ("path", "listing"),
    [
        ((), "compute/\nnetwork/"),
        (("network", "interface"), "0/"),
        (("network", "interface", "0"), "ipv4/\nipv6/\nmacAddress"),
        (("compute", "publicKeys"), ""),
    ],
)
def test_a_branch_as_text_lists_the_names_below_it(path: tuple[str, ...], listing: str) -> None:
    assert text(answer(MEMBER, NEWEST, path, "text")) == listing


words = st.text(max_size=12)
facts_of_all_kinds = st.builds(
    Facts,
    name=words,
    vm_id=words,
    scale_set=words,
    resource_group=words,
    subscription_id=words,
    update_domain=st.none() | st.integers(0, 20),
    spot=st.booleans(),
    tags=st.lists(st.tuples(words, words), max_size=3).map(tuple),
    mac_address=words,
    private_ipv4=st.lists(words, max_size=3).map(tuple),
    public_ipv4=st.lists(words, max_size=3).map(tuple),
    private_ipv6=st.lists(words, max_size=3).map(tuple),
    subnet=words,
)


@given(facts_of_all_kinds, st.sampled_from(INSTANCE_VERSIONS))
def test_every_leaf_is_answered_by_its_path_to_the_letter(facts: Facts, version: str) -> None:
    for path, value in leaves(tree(facts, version)):
        assert text(answer(facts, version, path, "text")) == value
        assert answer(facts, version, path, "json") == NeedsText()


elements = st.one_of(
    st.text(st.characters(), max_size=12),
    st.sampled_from(["compute", "network", "interface", "ipv4", "tagsList", "name", "0", "-1", ""]),
)


@given(
    facts_of_all_kinds,
    st.sampled_from(INSTANCE_VERSIONS) | words,
    st.lists(elements, max_size=6),
    st.sampled_from(["json", "text", ""]) | words,
)
def test_no_request_raises(facts: Facts, version: str, path: list[str], format: str) -> None:
    assert isinstance(
        answer(facts, version, path, format), InstanceBody | NeedsText | NoSuchElement
    )


# --- versions and host names ------------------------------------------------------------------


def test_the_versions_are_listed_compactly_and_ascending() -> None:
    assert versions_body().startswith(b'{"apiVersions":["2017-03-01","2017-04-02",')
    assert versions_body().endswith(b',"2024-03-15","2024-07-17","2025-04-07"]}')
    assert json.loads(versions_body())["apiVersions"] == sorted(set(INSTANCE_VERSIONS))


@pytest.mark.parametrize(
    ("n", "host_name"),
    [(0, "vmss000000"), (10, "vmss00000a"), (18, "vmss00000i"), (36**6 - 1, "vmsszzzzzz")],
)
def test_a_members_number_stands_in_its_host_name_in_base_36(n: int, host_name: str) -> None:
    assert host_name_of("vmss", n) == host_name
    assert instance_of(host_name) == ("vmss", n)
    assert instance_of(host_name.upper()) == ("VMSS", n)


@given(st.text(min_size=1), st.integers(0, 36**6 - 1))
def test_a_host_name_leads_back_to_the_member(prefix: str, n: int) -> None:
    assert instance_of(host_name_of(prefix, n)) == (prefix, n)


@pytest.mark.parametrize("n", [-1, 36**6])
def test_a_number_of_more_than_six_digits_has_no_host_name(n: int) -> None:
    with pytest.raises(ValueError, match="base 36"):
        host_name_of("vmss", n)


@pytest.mark.parametrize(
    "name", ["", "abc", "000012", "vmss00_012", "vmss 00012", "vmss00000\u212a"]
)
def test_a_name_without_six_digits_is_no_members(name: str) -> None:
    with pytest.raises(ValueError, match="base 36"):
        instance_of(name)
