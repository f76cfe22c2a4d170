"""Control nodes of this version beside those of an earlier one, on one database: each reads what
the other commits, and takes over from it, so that they can be upgraded one after the other.

`versions/forewarn.tar.xz` has the sources of the earlier version. It is replaced when a version may
no longer run beside it: `git archive COMMIT:src forewarn | xz -9e`, of the commit before.
"""

from __future__ import annotations

import contextlib
import signal
import tarfile
from pathlib import Path
from typing import Any

import pytest

from helpers.control_nodes import ControlProcess, ask, control_process, new_state
from helpers.waiting import until

EARLIER = Path(__file__).parent / "versions/forewarn.tar.xz"
FLEET = """
hosts: [{name: h1}, {name: h2}]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web-0, update_domain: 0, address: 10.0.0.1, host: h1}
      - {name: web-1, update_domain: 1, address: 10.0.0.2, host: h2}
  - {name: db, kind: standalone, machines: [{name: db, address: 10.0.0.3, host: h1}]}
"""
LISTS = ("/v1/events?past=true", "/v1/groups", "/v1/hosts", "/v1/machines", "/v1/rollouts")


class Versions:
    """Control nodes, each started with one of the two versions."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = new_state()
        self.stack = contextlib.ExitStack()
        with tarfile.open(EARLIER) as sources:
            sources.extraction_filter = getattr(tarfile, "data_filter", None)  # new in 3.11.4
            sources.extractall(directory / "earlier")
        self.before = {
            "earlier": ("env", f"PYTHONPATH={directory / 'earlier'}"),
            "this": ("env",),
        }

    def start(self, name: str, version: str) -> ControlProcess:
        directory = self.directory / name
        before = self.before[version]
        return self.stack.enter_context(control_process(directory, name, self.url, before=before))


def stop(node: ControlProcess) -> None:
    node.running.process.send_signal(signal.SIGTERM)
    assert node.running.wait() == 0


def done(node: ControlProcess, method: str, path: str, body: object = None) -> Any:
    answer = ask(node.control, method, path, body)
    assert answer.status < 300, (method, path, answer.body)
    return answer.json()


def change_much(node: ControlProcess) -> None:
    """Have the leader commit whatever both versions know."""
    reboot = {"type": "Reboot", "machines": ["web-0"]}
    for verb in ("cancel", "approve"):
        event = done(node, "POST", "/v1/events", reboot)["id"]
        done(node, "POST", f"/v1/events/{event}/{verb}")
    halt = done(node, "POST", "/v1/halts", {"groups": ["db"], "note": "why"})["id"]
    done(node, "POST", f"/v1/halts/{halt}/release", {})
    done(node, "POST", "/v1/hosts/h2/cordon", {"note": "why"})
    done(node, "POST", "/v1/hosts/h2/uncordon")
    done(node, "PATCH", "/v1/groups/web/policy", {"user_event_limit": 3})
    done(node, "PATCH", "/v1/machines/db", {"labels": {"tier": "one"}})
    rollout = done(node, "POST", "/v1/rollouts", {"type": "Freeze", "groups": ["web"]})["id"]
    done(node, "POST", f"/v1/rollouts/{rollout}/abort", {})
    maintained = done(node, "POST", "/v1/hosts/h1/maintain", {"mode": "Freeze"})["events"]
    done(node, "POST", f"/v1/events/{maintained[0]['id']}/cancel")  # and so all of them


def agree(leader: ControlProcess, follower: ControlProcess) -> None:
    """Wait until a node that follows knows what the leader knows, as far as both show it."""
    until(lambda: commit(follower) >= commit(leader))
    until(
        lambda: all(
            shown(leader, path, follower) == shown(follower, path, leader) for path in LISTS
        )
    )


def commit(node: ControlProcess) -> int:
    return int(done(node, "GET", "/v1/status")["control_node"]["commit"])


def shown(node: ControlProcess, path: str, other: ControlProcess) -> list[dict[str, Any]]:
    """Return what a list contains, in fields that both nodes show."""
    items, others = (done(one, "GET", path) for one in (node, other))
    known = set().union(*others) - {"metadata_url"}  # which only the leader has
    return [{key: value for key, value in item.items() if key in known} for item in items]


@pytest.fixture
def versions(tmp_path: Path) -> Any:
    versions = Versions(tmp_path)
    with versions.stack:
        yield versions


def test_two_versions_run_together_and_take_over_from_each_other(versions: Versions) -> None:
    earlier = versions.start("c1", "earlier")
    until(earlier.leads)
    done(earlier, "PUT", "/v1/fleet", FLEET.encode())
    change_much(earlier)
    this = versions.start("c2", "this")
    agree(earlier, this)
    stop(earlier)
    until(this.leads)
    change_much(this)
    earlier = versions.start("c1", "earlier")
    agree(this, earlier)
    change_much(this)
    agree(this, earlier)
    stop(this)
    until(earlier.leads)
    change_much(earlier)
    agree(earlier, versions.start("c2", "this"))
