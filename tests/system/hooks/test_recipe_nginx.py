"""The recipe examples/hooks/nginx-upstream with a real nginx under steady requests: none fails, and
none reaches a server that has been taken out."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from helpers.free_ports import free_port
from helpers.hook_recipes import Recipe, listening
from helpers.netns import require
from helpers.process import Running
from helpers.waiting import LIMIT, until

NAMES = ("web_0", "web_1", "web_2")


class Server(ThreadingHTTPServer):
    """One of the machines behind nginx. What is asked for at /slow is answered when the test says
    so."""

    daemon_threads = True

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.name = name
        self.asked = 0
        self.slow_one_is_here = threading.Event()
        self.go_on = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.asked += 1
        if self.path == "/slow":
            server.slow_one_is_here.set()
            server.go_on.wait(LIMIT)
        body = server.name.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Front:
    """nginx in front of them, and the requests that go on all the time."""

    def __init__(self, directory: Path, servers: dict[str, Server]) -> None:
        self.servers = servers
        self.port = free_port()
        self.conf = directory / "nginx.conf"
        self.peers = directory / "web.peers"
        self.include = directory / "web.servers"
        self.pid = directory / "nginx.pid"
        lines = [f"{name}  127.0.0.1:{server.server_port}" for name, server in servers.items()]
        self.peers.write_text("# the machines behind it\n" + "\n".join(lines) + "\n")
        temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{kind}_temp_path {directory}/{kind};" for kind in temporary)
        self.conf.write_text(f"""
            daemon off; worker_processes 1; pid {self.pid}; error_log {directory}/error.log;
            {"user root;" if os.geteuid() == 0 else ""}
            events {{ worker_connections 64; }}
            http {{
                access_log off; {paths}
                upstream web {{ include {self.include}; }}
                server {{
                    listen 127.0.0.1:{self.port};
                    location / {{ proxy_pass http://web; proxy_next_upstream off; }}
                }}
            }}""")
        self._over = threading.Event()
        self.answers: list[str] = []

    @property
    def nginx(self) -> str:
        return f"nginx -c {self.conf} -p {self.conf.parent} -e {self.conf.parent}/error.log"

    def start(self) -> None:
        argv = self.nginx.split()
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._running = Running(process, argv)
        until(lambda: listening(self.port), "nginx listens")
        self._load = threading.Thread(target=self._ask, daemon=True)
        self._load.start()

    def get(self, path: str = "/") -> str:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, 20)) as nginx:
            nginx.request("GET", path)
            answer = nginx.getresponse()
            return f"{answer.status} {answer.read().decode()}"

    def _ask(self) -> None:
        while not self._over.wait(0.015):
            try:
                self.answers.append(self.get())
            except (OSError, http.client.HTTPException) as error:
                self.answers.append(f"failed: {error}")

    def who_answers(self) -> set[str]:
        """Who answers the next dozen requests."""
        begin = len(self.answers)
        until(lambda: len(self.answers) > begin + 12, "requests are answered")
        return {answer.removeprefix("200 ") for answer in self.answers[begin + 1 :]}

    def stop(self) -> None:
        self._over.set()
        self._load.join(LIMIT)
        self._running.stop()


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    require(shutil.which("nginx", path="/usr/sbin:/usr/bin"), "nginx: apt-get install nginx")
    servers = {name: Server(name) for name in NAMES}
    front = Front(tmp_path_factory.mktemp("nginx"), servers)
    hook = Recipe("nginx-upstream/upstream.py", front.pid.parent, "lb", UPSTREAM_PEERS=front.peers)
    hook.ok("write")
    front.start()
    yield front
    front.stop()
    for server in servers.values():
        server.shutdown()
        server.server_close()
    assert {answer[:4] for answer in front.answers} == {"200 "}, "no request has failed"


@pytest.fixture
def hook(front: Front, tmp_path: Path) -> Recipe:
    assert front.who_answers() == set(NAMES)
    return Recipe(
        "nginx-upstream/upstream.py",
        tmp_path,
        "lb",
        FOREWARN_MINE="false",
        UPSTREAM_PEERS=front.peers,
        NGINX_PID=front.pid,
        NGINX_TEST=f"{front.nginx} -t",
        NGINX_RELOAD=f"{front.nginx} -s reload",
    )


def test_a_server_is_out_while_its_machine_is_disturbed_and_then_back(
    front: Front, hook: Recipe
) -> None:
    gone = {"FOREWARN_EVENT_RESOURCES": "web_1 elsewhere"}
    assert "web_1 is out\n" in hook.ok("prepare", **gone)
    asked = front.servers["web_1"].asked
    assert front.who_answers() == {"web_0", "web_2"}
    assert "web_1 is out" in hook.ok("prepare", **gone)
    assert front.servers["web_1"].asked == asked, "nothing has come to it since"
    assert hook.ok("undo").strip() == "web_1 is back"
    until(lambda: front.who_answers() == set(NAMES), "it is asked again")
    assert "nothing" in hook.ok("undo")


def test_a_request_that_is_under_way_is_waited_for(front: Front, hook: Recipe) -> None:
    until(lambda: any_slow(front), "a slow request is under way")
    slow = next(server for server in front.servers.values() if server.slow_one_is_here.is_set())
    gone = {"FOREWARN_EVENT_RESOURCES": slow.name}
    assert "time is up" in hook.fails("prepare", FOREWARN_SECONDS_LEFT="4", **gone)
    again = hook.begin("prepare", **gone)
    assert again.line() == f"{slow.name} is out"
    slow.go_on.set()
    assert again.line().startswith("no request ")
    assert again.wait() == 0
    hook.ok("undo")
    until(lambda: front.who_answers() == set(NAMES), "it is asked again")


def any_slow(front: Front) -> bool:
    threading.Thread(target=front.get, args=("/slow",), daemon=True).start()
    until(
        lambda: any(server.slow_one_is_here.is_set() for server in front.servers.values()),
        "the slow request has arrived",
    )
    return True


def test_two_events_and_an_operator_keep_a_server_out_until_all_let_it_go(
    front: Front, hook: Recipe
) -> None:
    hook.ok("prepare", "A", FOREWARN_EVENT_RESOURCES="web_0 web_1")
    hook.ok("prepare", "B", FOREWARN_EVENT_RESOURCES="web_1")
    assert "nobody " in hook.fails("prepare", "C", FOREWARN_EVENT_RESOURCES="web_2")
    assert hook.ok("undo", "A").strip() == "web_0 is back"
    by_hand = front.peers.with_suffix(".out") / "operator"
    by_hand.write_text("web_1\n")
    assert "by another" in hook.ok("undo", "B")
    assert "web_1" not in front.who_answers()
    by_hand.unlink()
    hook.ok("write")
    subprocess.run([*front.nginx.split(), "-s", "reload"], check=True, capture_output=True)
    until(lambda: front.who_answers() == set(NAMES), "all are asked again")


def test_a_hook_that_is_killed_in_the_middle_of_a_reload_is_undone(
    front: Front, hook: Recipe, tmp_path: Path
) -> None:
    reached = tmp_path / "reached"
    os.mkfifo(reached)
    begun = hook.begin("prepare", FOREWARN_EVENT_RESOURCES="web_2", NGINX_RELOAD=f"cat {reached}")
    with reached.open("w"):  # it is there only once somebody reads it
        hook.kill(begun)
    assert "down;  # web_2" in front.include.read_text()
    assert hook.ok("undo").strip() == "web_2 is back"
    assert "down" not in front.include.read_text()
    assert front.who_answers() == set(NAMES)


def test_a_machine_may_have_several_servers(tmp_path: Path) -> None:
    table = tmp_path / "app.peers"
    table.write_text("web_0  10.0.0.4:8080\nweb_0  10.0.0.4:8081 weight=2\nweb_1  10.0.0.5:8080\n")
    table.with_suffix(".out").mkdir()
    (table.with_suffix(".out") / "operator").write_text("web_0\n")
    Recipe("nginx-upstream/upstream.py", tmp_path, "lb", UPSTREAM_PEERS=table).ok("write")
    assert table.with_suffix(".servers").read_text().splitlines()[1:] == [
        "server 10.0.0.4:8080 down;  # web_0",
        "server 10.0.0.4:8081 weight=2 down;  # web_0",
        "server 10.0.0.5:8080;  # web_1",
    ]


def test_a_configuration_that_nginx_refuses_changes_nothing(front: Front, hook: Recipe) -> None:
    before = front.include.read_text()
    table = front.peers.read_text()
    assert "none of " in hook.ok("prepare", FOREWARN_EVENT_RESOURCES="elsewhere")
    for wrong, output in (("wait=1", "invalid parameter"), ("; }", "be like: web_0")):
        front.peers.write_text(f"{table}web_9  127.0.0.1:1 {wrong}\n")
        assert output in hook.fails("prepare", FOREWARN_EVENT_RESOURCES="web_0")
    front.peers.write_text(table)
    gone = {"FOREWARN_EVENT_RESOURCES": "web_0"}
    refusing = "sh -c 'echo no, thanks; false'"
    assert "no, thanks" in hook.fails("prepare", NGINX_RELOAD=refusing, **gone)
    assert "No such file" in hook.fails("prepare", NGINX_RELOAD="/nowhere/nginx", **gone)
    assert front.include.read_text() == before
    assert "nothing" in hook.ok("undo")
    assert "no event's id" in hook.fails("undo", FOREWARN_EVENT_ID="../x")


# Reloads as nginx does: a worker that has just been forked still has the master's title.
MASTER = """\
(exec -a 'nginx: worker process' sleep 600) & old=$!
trap "(exec -a 'nginx: master process' sleep 600) & kill $old" HUP
echo ready
while :; do wait; done
"""


def test_a_worker_that_has_just_begun_is_seen(tmp_path: Path) -> None:
    peers, pid = tmp_path / "web.peers", tmp_path / "nginx.pid"
    peers.write_text("web_0  127.0.0.1:1\nweb_1  127.0.0.1:2\n")
    argv = ["bash", "-c", MASTER]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    master = Running(process, argv)
    try:
        assert master.line() == "ready"
        pid.write_text(str(process.pid))
        recipe = Recipe(
            "nginx-upstream/upstream.py",
            tmp_path,
            "web_0",
            UPSTREAM_PEERS=peers,
            NGINX_PID=pid,
            NGINX_TEST="true",
            NGINX_RELOAD=f"sh -c 'kill -HUP {process.pid}'",
        )
        recipe.ok("prepare")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        master.stop()
