#!/usr/bin/env python3
"""A hook for the agent on a Kubernetes node: cordons and drains it before it is disturbed.

prepare: no new pods come to this machine's node, and those it has are evicted.
undo: the node takes pods again, if it did before, and if no other event still keeps it from that.

What is kept from one to the other is also written on the node, as an annotation for each event, so
that two events do not undo each other's work. The variables it reads are in README.md.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time  # noqa: TID251 - a program of a user's own, not a part of forewarn
from pathlib import Path

SECONDS = 600.0  # to take if the agent sets no limit
MARGIN = 1.0  # seconds of the time left that are not used
LAST = 30.0  # the last seconds, in which pods end sooner than they would like to
ANSWER = 20.0  # seconds for an answer of the cluster
TRIES = 5  # to change a node that others change at the same moment
MARK = "forewarn/event-"
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


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
    found = kept()
    node = get(found["node"]) if found else node_of(os.environ["FOREWARN_MACHINE"])
    if node is None:
        raise Trouble(f"there is no node {found['node']} any more")
    cordon(node)
    return drain(name_of(node))


def undo() -> None:
    found = kept()
    if not found:
        return say("nothing was prepared")
    node = get(found["node"])
    if node is None:
        say(f"there is no node {found['node']} any more")
    else:
        uncordon(node)
    return record().unlink()


# --- whether the node takes pods


def cordon(node: dict) -> None:
    def change(node: dict) -> dict:
        marks = marks_of(node)
        found = next(iter(marks.values()), "cordoned" if is_cordoned(node) else "open")
        before = marks.get(mine(), found)
        keep({"node": name_of(node), "before": before})
        return {"metadata": {"annotations": {mine(): before}}, "spec": {"unschedulable": True}}

    changed(node, change)
    say(f"node {name_of(node)} is cordoned")


def uncordon(node: dict) -> None:
    if mine() not in marks_of(node):
        return say(f"node {name_of(node)} was not cordoned for this event")

    def change(node: dict) -> dict:
        marks = marks_of(node)
        opened = len(marks) == 1 and marks.get(mine()) == "open"
        spec = {"unschedulable": None} if opened else {}
        return {"metadata": {"annotations": {mine(): None}}, "spec": spec}

    node = changed(node, change)
    if marks_of(node):
        return say(f"node {name_of(node)} stays cordoned for another event")
    if is_cordoned(node):
        return say(f"node {name_of(node)} stays cordoned, as it was before")
    return say(f"node {name_of(node)} takes pods again")


def changed(node: dict, change) -> dict:
    """The node after the change, which is made only to the very node that it was decided on."""
    for _ in range(TRIES):
        patch = change(node)
        patch["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"]
        words = ["patch", "node", name_of(node), "--type=merge", "-o", "json"]
        code, answer = kubectl(*words, "-p", json.dumps(patch))
        if code == 0:
            return json.loads(answer)
        if "Conflict" not in answer and "object has been modified" not in answer:
            raise Trouble(answer)
        node = get(name_of(node)) or node
    raise Trouble(f"others kept changing node {name_of(node)}: {answer}")


def is_cordoned(node: dict) -> bool:
    return bool(node["spec"].get("unschedulable"))


def marks_of(node: dict) -> dict[str, str]:
    notes = node["metadata"].get("annotations") or {}
    return {key: value for key, value in notes.items() if key.startswith(MARK)}


def mine() -> str:
    return MARK + os.environ["FOREWARN_EVENT_ID"]


# --- its pods


def drain(node: str) -> None:
    """Pods have the time they ask for, until the last seconds. Disruption budgets are kept."""
    last = min(LAST, left() / 3)
    if drained(node, left() - last):
        return say(f"node {node} is drained")
    if left() > last + 1:
        raise Trouble(f"kubectl cannot drain {node}; it stays cordoned until undo")
    say(f"{last:.0f} s are left: pods that are still there have half of it")
    if drained(node, left(), f"--grace-period={max(1, int(last / 2))}"):
        return say(f"node {node} is drained")
    raise Trouble(f"the time is up, and node {node} still has pods; it stays cordoned until undo")


def drained(node: str, seconds: float, *more: str) -> bool:
    timeout = max(1, int(seconds))
    words = [
        "drain",
        node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        f"--timeout={timeout}s",
    ]
    flags = shlex.split(os.environ.get("DRAIN_FLAGS", ""))
    try:
        return show(*words, *flags, *more, timeout=timeout + MARGIN / 2) == 0
    except subprocess.TimeoutExpired:
        return False


# --- which node


def node_of(machine: str) -> dict:
    """By NODE_NAME; else the node that is called as the machine is; else by its providerID."""
    if name := os.environ.get("NODE_NAME"):
        if node := get(name):
            return node
        raise Trouble(f"NODE_NAME is {name!r}, and there is no such node")
    if (node := get(host_name(machine))) and fits(node, machine):
        return node
    code, answer = kubectl("get", "nodes", "-o", "json")
    if code != 0:
        raise Trouble(answer)
    nodes = [node for node in json.loads(answer)["items"] if machine_of(node) == machine.lower()]
    if len(nodes) != 1:
        names = " ".join(name_of(node) for node in nodes) or "none"
        raise Trouble(f"which node is {machine!r}? By providerID: {names}. Set NODE_NAME")
    return nodes[0]


def host_name(machine: str) -> str:
    """Machines of scale sets are `set_18` in events, and `set00000i` to themselves."""
    if not (parts := re.fullmatch(r"(.+)_(\d+)", machine)):
        return machine.lower()
    number, digits = int(parts[2]), ""
    while number:
        number, digit = divmod(number, len(DIGITS))
        digits = DIGITS[digit] + digits
    return f"{parts[1].lower()}{digits.zfill(6)}"


def machine_of(node: dict) -> str:
    """What events call it: azure:///…/virtualMachineScaleSets/SET/virtualMachines/18 is set_18."""
    parts = node["spec"].get("providerID", "").lower().split("/")
    if parts[-4:-3] == ["virtualmachinescalesets"]:
        return f"{parts[-3]}_{parts[-1]}"
    return parts[-1]


def fits(node: dict, machine: str) -> bool:
    azure = node["spec"].get("providerID", "").startswith("azure:")
    return machine_of(node) == machine.lower() if azure else True


def name_of(node: dict) -> str:
    return node["metadata"]["name"]


# --- kubectl


def get(name: str) -> dict | None:
    code, answer = kubectl("get", "node", name, "--ignore-not-found", "-o", "json")
    if code != 0:
        raise Trouble(answer)
    return json.loads(answer) if answer else None


def kubectl(*words: str) -> tuple[int, str]:
    ended = subprocess.run(
        [*KUBECTL, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=max(1, min(ANSWER, left())),
    )
    return ended.returncode, (ended.stdout if ended.returncode == 0 else ended.stderr).strip()


def show(*words: str, timeout: float) -> int:
    return subprocess.run(
        [*KUBECTL, *words], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, timeout=timeout
    ).returncode


# --- what was found, kept from prepare to undo


def record() -> Path:
    return STATE / "found.json"


def kept() -> dict[str, str]:
    try:
        return json.loads(record().read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        raise Trouble(f"{record()} is not as it was written") from None


def keep(found: dict[str, str]) -> None:
    new = record().with_suffix(".new")
    with new.open("w") as file:
        json.dump(found, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(record())
    settle(record().parent)


def settle(directory: Path) -> None:
    """What was renamed in it is so after a power cut, too."""
    handle = os.open(directory, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


# --- small things


def needed(name: str) -> str:
    if not os.environ.get(name):
        raise Trouble(f"{name} is not set: a hook is run by the agent (docs/applications/hooks.md)")
    return os.environ[name]


def left() -> float:
    return DEADLINE - time.monotonic()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        limit = float(os.environ.get("FOREWARN_SECONDS_LEFT") or SECONDS)
        DEADLINE = time.monotonic() + limit - MARGIN
        STATE = Path(needed("FOREWARN_STATE"))
        program = shlex.split(os.environ.get("KUBECTL") or "kubectl")
        KUBECTL = [*program, f"--cache-dir={STATE}/cache"]
        main()
    except (Trouble, OSError, ValueError, subprocess.TimeoutExpired) as trouble:
        sys.exit(f"node: {trouble}")
