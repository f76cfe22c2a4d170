"""What a program in an enclosure reaches beside 169.254.169.254: loopback, names, the rest."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.enclosure_program import KILL_THE_KEEPER, enclose, without_rights
from helpers.netns import Lab, needs_root, require

ASK_LOOPBACK = """
import socket, sys
for place in sys.argv[1:]:
    print(socket.create_connection(place.split(":"), 20).recv(100).decode())
"""

# A machine of its own whose name server is on its loopback, and knows one address for every name.
RESOLVER = """
import socket, subprocess, sys, threading
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.53", 53))
def answer():
    while True:
        asked, caller = server.recvfrom(4096)
        end = asked.index(0, 12) + 5
        head = asked[:2] + b"\\x81\\x80\\0\\1\\0\\1\\0\\0\\0\\0" + asked[12:end]
        found = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4" + bytes([192, 0, 2, 77])
        server.sendto(head + found, caller)
threading.Thread(target=answer, daemon=True).start()
sys.exit(subprocess.call(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def where() -> Iterator[list[str]]:
    """Whose answers are to be had at 169.254.169.254; nobody asks here."""
    needs_root()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield [str(word) for word in listener.getsockname()]


@contextlib.contextmanager
def _database(host: str) -> Iterator[str]:
    """Something that listens on this machine's loopback and greets."""
    with socket.create_server((host, 0)) as listener:

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted, _ = listener.accept()
                    with accepted:
                        accepted.sendall(f"a database on {host}".encode())

        thread = threading.Thread(target=greet)
        thread.start()
        try:
            yield f"{host}:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("network", ["pasta", "slirp4netns", "loopback"])
@pytest.mark.parametrize("rights", ["root", "none"])
def test_services_on_loopback_are_reached_from_inside(
    where: list[str], tmp_path: Path, network: str, rights: str
) -> None:
    path = _only(tmp_path, network)
    prefix = without_rights() if rights == "none" else []
    with _database("127.0.0.1") as one, _database("127.0.7.7") as other:
        ask = [sys.executable, "-I", "-S", "-c", ASK_LOOPBACK, one, other]
        wanted = "loopback" if network == "loopback" else "full"
        found = enclose(prefix, sys.executable, *where, wanted, *ask, path=path)
    output = "a database on 127.0.0.1\na database on 127.0.7.7\n"
    assert found == {"network": network, "notes": [], "output": output, "code": 0}


def test_a_name_server_on_loopback_is_asked_from_inside(tmp_path: Path) -> None:
    needs_root()
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.53\n")
    machine = ["unshare", "--net", "--mount", sys.executable, "-I", "-S", "-c", RESOLVER]
    machine.append(str(tmp_path / "resolv.conf"))
    ask = "import socket; print(socket.gethostbyname('db.example'))"
    words = ["127.0.0.1", "1", "loopback", sys.executable, "-I", "-S", "-c", ask]
    assert enclose(machine, sys.executable, *words)["output"] == "192.0.2.77\n"


def _only(room: Path, network: str) -> str:
    """A PATH with this one program on it."""
    if network == "loopback":
        return str(room)
    found = shutil.which(network)
    package = "passt" if network == "pasta" else network
    require(found, f"{network} (apt-get install {package})")
    require(Path("/dev/net/tun").exists(), "/dev/net/tun")
    (room / network).symlink_to(str(found))
    return str(room)


@pytest.mark.parametrize("network", ["pasta", "slirp4netns"])
def test_the_rest_of_the_network_is_reached(tmp_path: Path, network: str) -> None:
    """The machine is a guest of a lab; what it reaches beyond itself is the lab's host."""
    needs_root()
    path = _only(tmp_path, network)
    with Lab(["10.77.0.11"]) as lab, contextlib.ExitStack() as closing:
        guest = lab.guests["10.77.0.11"]
        guest.run(["ip", "route", "add", "default", "via", lab.gateway])
        greeting = {8080: b"the service", 8081: b"the world"}
        for port, output in greeting.items():
            listener = lab.host.call(socket.create_server, (lab.gateway, port))
            closing.enter_context(listener)
            threading.Thread(target=_greet_once, args=(listener, output)).start()
        ask = "import socket\nfor place in [('169.254.169.254', 80), ('10.77.0.1', 8081)]:"
        ask += "\n    print(socket.create_connection(place, 20).recv(100).decode())"
        program = [sys.executable, "-I", "-S", "-c", ask]
        where = [lab.gateway, "8080", "full"]
        found = guest.call(enclose, [], sys.executable, *where, *program, path=path)
    assert (found["network"], found["notes"], found["code"]) == (network, [], 0)
    assert found["output"].splitlines() == ["the service", "the world"]


@pytest.mark.parametrize("network", ["pasta", "slirp4netns"])
@pytest.mark.parametrize("rights", ["root", "none"])
def test_helper_processes_end_with_their_keeper_even_if_killed(
    tmp_path: Path, network: str, rights: str
) -> None:
    needs_root()
    path = _only(tmp_path, network)
    prefix = without_rights() if rights == "none" else []
    where = ["127.0.0.1", "1", "full"]
    found = enclose(prefix, sys.executable, *where, KILL_THE_KEEPER, path=path)
    assert found == {"network": network, "ended": 2}  # the anchor, and what is around


def _greet_once(listener: socket.socket, output: bytes) -> None:
    accepted, _ = listener.accept()
    with accepted:
        accepted.sendall(output)


def test_without_pasta_and_slirp4netns_their_packages_are_named(
    where: list[str], tmp_path: Path
) -> None:
    python = sys.executable
    found = enclose([], python, *where, "auto", python, "-c", "", path=str(tmp_path))
    assert found["network"] == "loopback"
    assert "passt or slirp4netns" in found["notes"][0]
    refused = enclose([], python, *where, "full", python, "-c", "", path=str(tmp_path))
    assert "passt or slirp4netns" in refused["refused"]
