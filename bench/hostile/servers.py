"""What is attacked: a service in a single process, and a node beside control on the same core."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping

from bench.poll.fleet import Fleet
from bench.poll.peers import FOREWARN, Command, Place, Prepare, forewarn, written
from bench.poll.servers import free_port
from forewarn.node.listening.make_certificate import make_certificate
from forewarn.service.access.machine_tokens import LEAST_KEY

HOST = "host-a"
NODE = "forewarn node"


def single(place: Place, fleet: Fleet) -> Command:
    """With identities, so that machines can ask for tokens."""
    (place.directory / "identities").write_text(secrets.token_hex(LEAST_KEY))
    pair = make_certificate(place.directory, ["127.0.0.1"])
    return forewarn(
        place,
        fleet,
        arm=f"127.0.0.1:{free_port()}",
        identities=str(place.directory / "identities"),
        tls_certificate=str(pair.certificate),
        tls_key=str(pair.key),
    )


def node(place: Place, fleet: Fleet) -> Command:
    command = single(place, fleet)
    machines = place.directory / "fleet.yaml"
    machines.write_text(
        f"hosts: [{HOST}]\n" + machines.read_text().replace("}", f", host: {HOST}}}")
    )
    config = place.directory / "forewarn.toml"
    settings = config.read_text().splitlines()
    nodes = {"nodes": str(place.directory / "nodes"), "nodes_host": HOST}
    kept = [line for line in settings if not line.startswith(("metadata", "front"))]
    config.write_text("\n".join([*kept, *written(nodes)]) + "\n")
    own = {
        "host": HOST,
        "control": str(place.directory / "nodes"),
        "journal": str(place.directory / "journal"),
        "metadata": f"127.0.0.1:{place.metadata}",
        "status": "",
    }
    (place.directory / "node.toml").write_text("\n".join(written(own)) + "\n")
    files = [str(config), str(place.directory / "node.toml")]
    argv = [sys.executable, "-m", "bench.hostile.beside", *files]
    return Command(argv, command.env, command.ready)


SERVERS: Mapping[str, Prepare] = {FOREWARN: single, NODE: node}
