"""Option 245 is found in what DHCP clients write down, whichever client it is; and whatever else
lies there is no trouble. The files in `leases/` were written by the real clients."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.client.discovery import lease_formats, leases, windows_registry
from forewarn.client.discovery.lease_formats import Offer, dhclient, unicast
from helpers.examples import examples

WRITTEN = Path(__file__).parent / "leases"
DHCLIENT = "var/lib/dhcp/dhclient.eth0.leases"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


def put(root: Path, place: str, content: str | bytes, changed: int = 1_000) -> Path:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("latin-1") if isinstance(content, str) else content)
    os.utime(path, (changed, changed))
    return path


def lease(option: str, interface: str = "eth0", expire: str = "never") -> str:
    return (
        f'lease {{\n  interface "{interface}";\n  fixed-address 10.0.0.9;\n'
        f'  option host-name "a;b}}\\"{{";\n  {option}\n  expire {expire};\n}}\n'
    )


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("dhclient.leases", DHCLIENT),
        ("dhclient.leases", "var/lib/dhclient/dhclient--eth0.lease"),
        ("dhclient.leases", "var/lib/NetworkManager/dhclient-5fb06bd0-eth0.lease"),
        ("networkd", "run/systemd/netif/leases/2"),
        ("networkd", "var/lib/NetworkManager/internal-5fb06bd0-eth0.lease"),
        ("networkmanager-device", "run/NetworkManager/devices/2"),
        ("dhcpcd.lease", "var/lib/dhcpcd/eth0.lease"),
    ],
)
def test_leases_of_every_dhcp_client_are_read(root: Path, name: str, place: str) -> None:
    put(root, place, (WRITTEN / name).read_bytes())
    assert leases.offered_addresses(root) == ("10.0.0.1",)


@pytest.mark.parametrize(
    "response",
    [
        "a8:3f:81:10",
        r'"\250?\201\020"',
        '"\xa8?\x81\x10"',
        "168.63.129.16",
        "168,63,129,16",
        "2822734096",
    ],
)
def test_dhclient_writes_an_option_as_its_type_says(response: str) -> None:
    names = lease_formats.dhclient_names("# option no code 245 = text;\noption where code 245 = x;")
    assert names == {"where"}
    assert dhclient(lease(f"option where {response};"), names) == [Offer("168.63.129.16")]


def test_dhclient_writes_an_option_that_can_be_printed_as_text() -> None:
    assert dhclient(lease(r'option unknown-245 "A\";C";')) == [Offer("65.34.59.67")]
    assert dhclient(lease(r'option unknown-245 "A\\\$\'";')) == [Offer("65.92.36.39")]


def test_the_name_comes_from_dhclients_own_configuration(root: Path) -> None:
    put(root, DHCLIENT, lease("option endpoint 10.0.0.1;"))
    assert leases.offered_addresses(root) == ()
    put(root, "etc/dhcp/dhclient.conf", "option endpoint code 245 = ip-address;")
    assert leases.offered_addresses(root) == ("10.0.0.1",)


def test_the_last_lease_of_each_interface_counts(root: Path) -> None:
    first = lease("option unknown-245 a:0:0:1;") + lease("option unknown-245 a:0:0:2;", "eth1")
    put(root, DHCLIENT, first + lease("option unknown-245 a:0:0:3;"))
    assert leases.offered_addresses(root) == ("10.0.0.3", "10.0.0.2")
    put(root, DHCLIENT, first + lease("option routers 10.0.0.1;"))
    assert leases.offered_addresses(root) == ("10.0.0.2",)


def test_an_incomplete_lease_is_ignored() -> None:
    begun = lease("option unknown-245 a:0:0:2;").removesuffix("}\n")
    first = lease("option unknown-245 a:0:0:1;")
    assert dhclient(first + begun) == [Offer("10.0.0.1")]
    for length in range(len("lease {"), len(begun)):  # nor one that was never finished
        assert dhclient(begun[:length] + "\n" + first) == [Offer("10.0.0.1")]


def test_leases_of_a_dhcp_server_are_ignored() -> None:
    given_away = lease("option unknown-245 a:0:0:1;").replace("lease {", "lease 10.0.0.9 {")
    assert dhclient(given_away) == []


def test_the_latest_lease_comes_first_and_no_address_twice(root: Path) -> None:
    put(root, "run/systemd/netif/leases/2", "OPTION_245=0a000001", changed=2_000)
    put(root, "run/systemd/netif/leases/3", "OPTION_245=0a000002", changed=3_000)
    put(root, DHCLIENT, lease("option unknown-245 a:0:0:1;"), changed=1_000)
    assert leases.offered_addresses(root) == ("10.0.0.2", "10.0.0.1")


@pytest.mark.parametrize("when", ["6 2017/11/25 01:48:29", "epoch 1511574509"])
def test_a_lease_that_has_ended_counts_only_where_there_is_no_other(root: Path, when: str) -> None:
    put(root, DHCLIENT, lease("option unknown-245 a:0:0:1;", expire=when), changed=9_000)
    assert leases.offered_addresses(root) == ("10.0.0.1",)
    put(root, "run/systemd/netif/leases/2", "OPTION_245=0a000002", changed=1_000)
    assert leases.offered_addresses(root) == ("10.0.0.2",)


@pytest.mark.parametrize(
    ("response", "counts"),
    [
        ("168.63.129.16", True),
        ("169.254.169.254", True),
        ("1.0.0.0", True),
        ("223.255.255.255", True),
        ("0.0.0.0", False),
        ("127.0.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
    ],
)
def test_only_an_address_that_can_be_a_machines_counts(response: str, counts: bool) -> None:
    value = bytes(int(part) for part in response.split("."))
    assert unicast(value) == (response if counts else None)
    assert unicast(value + b"\1") is None


@pytest.mark.parametrize(
    "response",
    ["256.0.0.1", "10.0.0", "4294967296", "300:0:0:1", "a:0:0:1:2", "²0.0.0.1", '"a"', ""],
)
def test_an_invalid_address_is_ignored(response: str) -> None:
    assert dhclient(lease(f"option unknown-245 {response};")) == []
    assert lease_formats.keyed(f"OPTION_245={response}") == []
    assert lease_formats.keyed(f"dhcp4.expiry={response}\nOPTION_245=0a000001") != []


def test_a_packet_may_hold_the_option_in_parts_and_in_its_other_fields() -> None:
    ended = b"\x33\x04\0\0\0\x3c"  # after a minute
    parts = bytes([245, 2, 10, 0]) + b"\0" + bytes([245, 2, 0, 1])
    assert lease_formats.packet(_packet(ended + parts), 100.0) == [Offer("10.0.0.1", 100.0, 160.0)]
    assert lease_formats.packet(_packet(b"\x34\x01\x01", file=parts)) == [Offer("10.0.0.1")]
    assert lease_formats.packet(_packet(b"\x34\x01\x02", server=parts)) == [Offer("10.0.0.1")]
    assert lease_formats.packet(_packet(b"\x34\x01\x02", file=parts)) == []
    assert lease_formats.packet(_packet(parts).replace(b"\x63\x82", b"\0\0")) == []
    assert lease_formats.packet(_packet(b"", file=parts)) == []
    assert lease_formats.packet(_packet(parts)[:-5]) == []


def _packet(options: bytes, file: bytes = b"", server: bytes = b"") -> bytes:
    fields = server.ljust(64, b"\0") + file.ljust(128, b"\0")
    return bytes(44) + fields + b"\x63\x82\x53\x63" + options + b"\xff"


def test_an_older_networkmanager_is_queried(root: Path) -> None:
    asked = put(root, "usr/bin/nmcli", f"#!/bin/sh\ncat '{WRITTEN / 'nmcli'}'\n")
    asked.chmod(0o755)
    assert leases.offered_addresses(root) == ()  # it does not run
    (root / "run/NetworkManager").mkdir(parents=True)
    assert leases.offered_addresses(root) == ("10.0.0.1",)
    put(root, "run/systemd/netif/leases/2", "OPTION_245=0a000002")
    assert leases.offered_addresses(root) == ("10.0.0.2",)
    [offer] = lease_formats.nmcli((WRITTEN / "nmcli").read_text())
    assert offer.expires is not None
    assert offer.expires - offer.obtained == 43_200


def test_a_networkmanager_that_does_not_answer_is_not_waited_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, "usr/bin/nmcli", "#!/bin/sh\nexec sleep infinity\n").chmod(0o755)
    (root / "run/NetworkManager").mkdir(parents=True)
    monkeypatch.setattr(leases, "NMCLI_TIMEOUT", 0.01)
    assert leases.offered_addresses(root) == ()


def test_the_end_of_a_long_dhclient_file_is_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MAX_SIZE", 4_096)
    text = lease("option unknown-245 a:0:0:1;")
    many = text * (leases.MAX_SIZE // len(text) + 10)
    put(root, DHCLIENT, many + lease("option unknown-245 a:0:0:2;"))
    assert leases.offered_addresses(root) == ("10.0.0.2",)


def test_an_unreadable_file_is_skipped(root: Path) -> None:
    put(root, "run/systemd/netif/leases/2", "OPTION_245=0a000001")
    here = root / "run/systemd/netif/leases"
    (here / "loop").symlink_to(here / "loop")
    (here / "nowhere").symlink_to(here / "gone")
    (here / "directory").mkdir()
    os.mkfifo(here / "nobody-writes")
    put(root, "run/systemd/netif/leases/huge", "OPTION_245=0a000009\n" + "\n" * leases.MAX_SIZE)
    put(root, "run/NetworkManager", "no directory")
    put(root, "var/lib/dhcp/x.leases", lease("option unknown-245 a:0:0:2;")).chmod(0)
    found = leases.offered_addresses(root)
    assert set(found) - {"10.0.0.2"} == {"10.0.0.1"}  # root reads all


def test_a_pipe_is_left_alone(root: Path) -> None:
    pipe = root / "run/systemd/netif/leases/2"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    os.write(end, b"OPTION_245=0a000001\n")
    assert leases.offered_addresses(root) == ()
    os.close(end)


def test_only_the_newest_of_too_many_files_are_read(root: Path) -> None:
    for number in range(leases.MAX_FILES + 3):
        address = f"OPTION_245=0a0000{number + 1:02x}"
        put(root, f"run/systemd/netif/leases/{number}", address, changed=number)
    newest = leases.MAX_FILES + 3
    assert leases.offered_addresses(root) == tuple(
        f"10.0.0.{newest - n}" for n in range(leases.MAX_OFFERED)
    )


_PIECES = [
    *("lease {", "}", ";", '"', "\\", "interface", "option unknown-245", "expire 6", "a:0:0:1"),
    *("2017/02/31 01:00:00", "epoch", "#", "\n", "dhcp4.expiry=", "OPTION_245="),
    "DHCP4.OPTION[1]:",
]


@settings(max_examples=examples(30))
@given(st.lists(st.sampled_from(_PIECES) | st.text(max_size=4), max_size=40), st.binary())
def test_garbage_is_ignored(pieces: list[str], data: bytes) -> None:
    text = " ".join(pieces)
    for offers in (
        dhclient(text),
        lease_formats.keyed(text),
        lease_formats.nmcli(text),
        lease_formats.packet(bytes(236) + b"\x63\x82\x53\x63" + data),
        windows_registry.offers(data),
        windows_registry.offers(struct.pack("<LLLLL", 245, 0, 4, 0, 0) + data),
    ):
        assert all(offer.address.count(".") == 3 for offer in offers)


def test_a_text_that_is_never_closed_takes_no_longer_than_any_other() -> None:
    assert dhclient('lease { option unknown-245 "' + '\\"' * 100_000) == []
