"""The servers: what each is started with, so that all do the same work.

Everyone checks the Metadata header and the api-version, finds the document by source address,
gives every answer an id, and closes a connection whose head takes 10 s or which idles for 120 s
(uvicorn on its own knows no limit for a head).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.poll.fleet import PATH, QUERIES, Fleet

HERE = Path(__file__).parent
NGINX = "/usr/sbin/nginx"


@dataclass(frozen=True)
class Command:
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    ready: str = ""  # what it says when all of it is there, if it says so


@dataclass(frozen=True)
class Place:
    """Where a server keeps its files and listens; `tools` is where what we built lies."""

    directory: Path
    tools: Path
    metadata: int
    control: int


Prepare = Callable[[Place, Fleet], Command]


def forewarn(place: Place, fleet: Fleet, *, front: bool = True, **more: object) -> Command:
    """`more` are further settings."""
    (place.directory / "fleet.yaml").write_text(fleet.yaml())
    settings: dict[str, object] = {
        "fleet": "fleet.yaml",
        "state": "state.db",
        "metadata": f"127.0.0.1:{place.metadata}",
        "control": f"127.0.0.1:{place.control}",
        "front": front,
        **more,
    }
    if fleet.size == 1:
        settings["max_connections_per_machine"] = 16_384  # the one stands for many
    config = place.directory / "forewarn.toml"
    config.write_text("\n".join(written(settings)) + "\n")
    return Command(
        [sys.executable, "-m", "forewarn", "serve", "--config", str(config)],
        {"XDG_RUNTIME_DIR": str(place.directory)},
        ready="ready {",
    )


def written(settings: Mapping[str, object]) -> list[str]:
    return [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in settings.items()]


def without_front(place: Place, fleet: Fleet) -> Command:
    return forewarn(place, fleet, front=False)


def nginx(place: Place, fleet: Fleet) -> Command:
    """Of deferred, reuseport, multi_accept, geo and map, only `deferred` stood out of the noise."""
    versions = " ".join(f"{query} 1;" for query in QUERIES)
    documents = "\n".join(f"    {source} '{body}';" for source, _, body in fleet.documents())
    tags = "\n".join(f"    {source} '{tag}';" for source, tag, _ in fleet.documents())
    config = place.directory / "nginx.conf"
    config.write_text(f"""\
daemon off;
worker_processes 1;
worker_rlimit_nofile 16896;
pid {place.directory}/nginx.pid;
error_log stderr;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 120s;
  client_header_timeout 10s;
  client_body_timeout 10s;
  client_max_body_size 64k;
  map_hash_max_size {max(2048, 2 * fleet.size)};
  map_hash_bucket_size 128;
  map $http_metadata $metadata {{ default 0; true 1; }}
  map $args $version {{ default 0; {versions} }}
  map $remote_addr $document {{
    default '';
{documents}
  }}
  map $remote_addr $tag {{
    default '';
{tags}
  }}
  server {{
    listen 127.0.0.1:{place.metadata} backlog=2048 deferred;
    default_type 'application/json; charset=utf-8';
    location = {PATH} {{
      if ($document = '') {{ return 404; }}
      if ($metadata = 0) {{ return 400; }}
      if ($version = 0) {{ return 400; }}
      add_header ETag $tag;
      add_header x-ms-request-id $request_id;
      return 200 $document;
    }}
    location / {{ return 404; }}
  }}
}}
""")
    return Command([NGINX, "-p", str(place.directory), "-c", str(config)])


def go(place: Place, fleet: Fleet) -> Command:
    files = map(str, fleet.write_plain(place.directory))
    argv = [str(place.tools / "peer"), *files, f"127.0.0.1:{place.metadata}"]
    return Command(argv, {"GOMAXPROCS": "1"})  # it has one core


def uvicorn(place: Place, fleet: Fleet) -> Command:
    files = map(str, fleet.write_plain(place.directory))
    return Command([sys.executable, str(HERE / "plain.py"), *files, str(place.metadata)])


FOREWARN, WITHOUT_FRONT, NGINX_NAME = "forewarn", "forewarn, no front", "nginx"
PEERS: Mapping[str, Prepare] = {
    FOREWARN: forewarn,
    WITHOUT_FRONT: without_front,
    NGINX_NAME: nginx,
    "Go net/http": go,
    "uvicorn": uvicorn,
}
