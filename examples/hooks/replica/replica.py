#!/usr/bin/env python3
"""A hook for the agent: a replica becomes the primary before the primary's machine is disturbed.

prepare: if the Redis here is a primary, a replica that has everything becomes it (FAILOVER).
undo: with HAND_BACK=yes the one here becomes the primary again; without, it stays a replica.

The variables it reads are in README.md. Needs redis-cli, and Redis 6.2 or newer.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time  # noqa: TID251 - a program of a user's own, not a part of forewarn
from pathlib import Path

PAUSE_MOST = 10.0  # seconds for which writes may wait while the replica catches up
SECONDS = 60.0  # to take if the agent sets no limit
MARGIN = 2.0  # seconds of the time left that are not used
POLL = 0.05  # seconds between two looks
CLI_TIMEOUT = 10.0  # seconds for one answer of Redis

Address = tuple[str, int]


class Trouble(Exception):
    pass


def main() -> None:
    stage = needed("FOREWARN_STAGE")
    if stage == "prepare":
        prepare()
    elif stage == "undo":
        undo()
    else:
        say(f"nothing to do when an event has {stage}")


def prepare() -> None:
    if os.environ.get("FOREWARN_MINE") == "false":
        return say("the event is not about this machine")
    now = replication(HERE)
    found = kept() or keep({"role": now["role"]})
    if found["role"] != "master":
        return say(f"{text(HERE)} was a replica: nothing to hand over")
    if now["role"] == "master":
        to = OTHER or furthest(HERE)
        keep({"role": "master", "to": text(to)})
        hand_over(HERE, to)
    primary = primary_of(HERE)
    make_it_last(HERE, primary)
    return say(f"{text(primary)} is the primary, {text(HERE)} its replica")


def undo() -> None:
    found = kept()
    if not found or found["role"] != "master":
        forget()
        return say("nothing was handed over")
    wait_for(lambda: role(HERE), f"{text(HERE)} does not answer")
    wait_for(lambda: settled(HERE), f"{text(HERE)} is still handing over")
    primary = role(HERE) == "master"
    if primary and "to" in found and role(address(found["to"])) == "master":
        raise Trouble(
            f"both {text(HERE)} and {found['to']} are primaries: what was written to {text(HERE)} "
            f"since it came back is not on the other. Say REPLICAOF to one of them"
        )
    if primary:
        say(f"{text(HERE)} is the primary")
    else:
        hand_back(primary_of(HERE))
    return forget()


def hand_back(primary: Address) -> None:
    if os.environ.get("HAND_BACK") == "yes":
        mine = wait_for(lambda: seen_by(primary), f"{text(primary)} has no replica {text(HERE)}")
        hand_over(primary, mine)
        say(f"{text(HERE)} is the primary again, {text(primary)} its replica")
    else:
        say(f"{text(HERE)} stays a replica of {text(primary)} (HAND_BACK=yes changes that)")
    make_it_last(HERE, primary)


# --- what is said to Redis


def hand_over(old: Address, new: Address) -> None:
    """Redis does it as one: it holds writes back, waits until the replica has every one that was
    acknowledged, and only then changes places with it; or it gives up, and all is as before. If
    this program dies meanwhile, nothing is left halfway."""
    if settled(old):
        if new not in online_replicas(old):
            raise Trouble(f"{text(old)} has no replica {text(new)} online: nothing was changed")
        pause = str(int(max(1.0, min(PAUSE_MOST, left())) * 1000))
        redis(old, "OK", "FAILOVER", "TO", new[0], str(new[1]), "TIMEOUT", pause)
        say(f"{text(old)} hands over to {text(new)}")
    wait_for(lambda: settled(old), f"{text(old)} is still handing over")
    if replication(old)["role"] == "master":
        raise Trouble(f"{text(new)} did not catch up in time: {text(old)} is the primary as before")
    wait_for(lambda: linked(old), f"{text(old)} is not connected to the new primary")


def make_it_last(*servers: Address) -> None:
    """After a reboot Redis is what its configuration says: without this there would be two."""
    for server in servers:
        redis(server, "OK", "CONFIG", "REWRITE")


def replication(server: Address) -> dict[str, str]:
    answer = redis(server, "# Replication", "INFO", "replication")
    return dict(line.split(":", 1) for line in answer.splitlines() if ":" in line)


def role(server: Address) -> str:
    try:
        return replication(server)["role"]
    except Trouble:
        return ""


def settled(server: Address) -> bool:
    return replication(server).get("master_failover_state", "no-failover") == "no-failover"


def linked(server: Address) -> bool:
    return replication(server).get("master_link_status") == "up"


def primary_of(server: Address) -> Address:
    now = replication(server)
    return now["master_host"], int(now["master_port"])


def online_replicas(server: Address) -> dict[Address, int]:
    """By what the server calls them, and how far each has come."""
    now, found = replication(server), {}
    for number in range(int(now["connected_slaves"])):
        fields = dict(pair.split("=", 1) for pair in now[f"slave{number}"].split(","))
        if fields["state"] == "online":
            found[fields["ip"], int(fields["port"])] = int(fields["offset"])
    return found


def furthest(server: Address) -> Address:
    replicas = online_replicas(server)
    if not replicas:
        raise Trouble(f"{text(server)} has no replica online: nothing was changed")
    return max(replicas, key=replicas.__getitem__)


def seen_by(primary: Address) -> Address | None:
    """What the primary calls the Redis here, once that is online."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect(primary)  # sends nothing, but finds out by which address one goes there
        me = SEEN_AS or (way.getsockname()[0], HERE[1])
    return me if me in online_replicas(primary) else None


def redis(server: Address, expected: str, *words: str) -> str:
    """The answer to a command, if it is the expected one."""
    argv = [*CLI, "-h", server[0], "-p", str(server[1]), *words]
    try:
        ended = subprocess.run(
            argv, capture_output=True, text=True, timeout=CLI_TIMEOUT, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise Trouble(f"{text(server)} did not answer {words[0]} in {CLI_TIMEOUT:g} s") from None
    answer = ended.stdout.strip()
    if ended.returncode != 0 or not answer.startswith(expected):
        why = answer or ended.stderr.strip()
        raise Trouble(f"{text(server)} answered {' '.join(words)}: {why}")
    return answer


# --- what was found, kept from prepare to undo


def record() -> Path:
    return Path(needed("FOREWARN_STATE")) / "found.json"


def kept() -> dict[str, str] | None:
    try:
        return json.loads(record().read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        raise Trouble(f"{record()} is not as it was written") from None


def keep(found: dict[str, str]) -> dict[str, str]:
    new = record().with_suffix(".new")
    with new.open("w") as file:
        json.dump(found, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(record())
    settle(record().parent)
    return found


def settle(directory: Path) -> None:
    """What was renamed in it is so after a power cut, too."""
    handle = os.open(directory, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def forget() -> None:
    record().unlink(missing_ok=True)


# --- small things


def left() -> float:
    return DEADLINE - time.monotonic()


def wait_for(look, otherwise: str):
    while not (seen := look()):
        if left() < POLL:
            raise Trouble(f"the time is up: {otherwise}")
        time.sleep(POLL)
    return seen


def needed(name: str) -> str:
    if not os.environ.get(name):
        raise Trouble(f"{name} is not set: a hook is run by the agent (docs/applications/hooks.md)")
    return os.environ[name]


def address(words: str) -> Address:
    host, _, port = words.rpartition(":")
    if not host or not port.isdigit():
        raise Trouble(f"{words!r} is no address: it would be like 10.0.0.4:6379")
    return host, int(port)


def text(server: Address) -> str:
    return f"{server[0]}:{server[1]}"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    CLI = shlex.split(os.environ.get("REDIS_CLI") or "redis-cli")
    try:
        limit = float(os.environ.get("FOREWARN_SECONDS_LEFT") or SECONDS)
        DEADLINE = time.monotonic() + limit - MARGIN
        HERE = address(os.environ.get("REDIS_HERE") or "127.0.0.1:6379")
        OTHER = address(os.environ["REDIS_OTHER"]) if os.environ.get("REDIS_OTHER") else None
        SEEN_AS = address(os.environ["REDIS_SEEN_AS"]) if os.environ.get("REDIS_SEEN_AS") else None
        if os.environ.get("REDIS_AUTH_FILE"):
            os.environ["REDISCLI_AUTH"] = Path(os.environ["REDIS_AUTH_FILE"]).read_text().strip()
        main()
    except (Trouble, OSError, ValueError) as trouble:
        sys.exit(f"replica: {trouble}")
