"""Make the stored state file of the current schema.

Run by hand, never by the tests, as README.md shows. It runs a small service on a virtual clock, and
writes down, as this code reads it, what the state is at the end.
"""

from __future__ import annotations

import gzip
import itertools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from forewarn.core import EventType, Refused
from forewarn.core.access import Limit, Role, Token
from forewarn.core.registry import TokenPut
from forewarn.core.rollouts.selection import Selection
from forewarn.core.time import DAY
from forewarn.core.windows.syntax import parse_window
from forewarn.service.engine.writer import CommitPlan
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.store.port import Batch, HistoryQuery, Key, PollSightings
from forewarn.store.sql.schema import SCHEMA_VERSION
from forewarn.testing import Service
from forewarn.wire.versions import BY_NAME
from helpers.released import refuse_released

T = TypeVar("T")

HERE = Path(__file__).parent

FLEET = """
hosts: [rack-1, rack-2, {name: rack-3, labels: {row: west}}, rack-4]
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, update_domain: 0, host: rack-1}
      - {name: web_1, update_domain: 1, host: rack-2}
      - {name: web_2, update_domain: 0, host: rack-1, spot: true}
      - {name: web_3, update_domain: 2, host: rack-2}
  - name: sql
    kind: availability-set
    machines:
      - {name: sql-0, update_domain: 0, host: rack-1, tags: {tier: gold}}
      - {name: sql-1, update_domain: 1, host: rack-3}
  - name: idle
    kind: standalone
    machines:
      - {name: idle, update_domain: 0}
"""


def new_ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012X}"


def run_events(service: Service) -> None:
    """Events of every status, in all the ways in which they come about."""
    service.get("web_0")
    service.get("sql-1")
    finished = service.schedule(
        "Reboot", "web_0", description="Host server is undergoing maintenance."
    )
    service.get("web_1")
    service.approve("web_1", finished)
    service.clock.advance("12m")
    service.cancel(service.schedule("Freeze", "web_1"))
    by_notice = service.schedule("Redeploy", "sql-0", notice="10m")
    service.get("sql-0")  # and does not approve
    service.clock.advance("9m")
    service.clock.interrupt("7m")
    service.clock.advance("3m")
    assert (
        allowed(
            service._session.run(service._session.node.platform.event(by_notice.id))
        ).status.value
        == "Started"
    )
    service.clock.advance("5m")
    service.restart("idle")  # unannounced
    service.clock.advance("15m")
    service.schedule("Reboot", "idle", notice="3d")  # never shown: the group is not enabled
    service.clock.advance("30m")
    service.disable("sql")
    service.get("sql-0")
    run_hosts_and_rollouts(service)
    create_tokens(service)
    place_halts(service)
    started = service.schedule("Freeze", "web_1", duration=5)
    service.approve("web_1", started)
    waiting = service.schedule("Reboot", "web_3", notice="2h")
    service.approve("web_3", waiting)  # approved, but another domain is disturbed
    service.restart("sql-1")
    service.schedule("Reboot", "web_0", notice="1d")
    for machine in ("web_0", "web_1", "sql-0"):
        service.get(machine)
    service._session.run(service._session.node.poll_index.save(service._session.node.writer.now()))


def run_hosts_and_rollouts(service: Service) -> None:
    """Hosts, removals, readiness, joint events and rollouts."""
    node = service._session.node
    service._session.run(node.hosts.degrade("rack-4", "operator"))
    allowed(service._session.run(node.removals.evict("web_2", "operator")))
    service.clock.advance("5m")
    freeze = EventType.FREEZE
    allowed(service._session.run(node.hosts.maintain("rack-1", freeze, "operator", notice=3 * DAY)))
    outcome = allowed(
        service._session.run(
            node.platform.schedule(type=EventType.FREEZE, machines=("sql-0",), by="x")
        )
    )
    service._session.run(node.guests.prepare("sql-0", "sql", outcome.event.id, True, "drained"))
    allowed(service._session.run(node.rollouts.start(rollout(EventType.FREEZE, "web"))))
    service.clock.advance("16m")
    report = allowed(service._session.run(node.rollouts.start(rollout(EventType.FREEZE, "sql"))))
    allowed(service._session.run(node.rollouts.abort(report.rollout.id, "operator", "not today")))
    service.clock.advance("1h")
    windows = (parse_window("sat 02:00-04:00 Europe/Berlin"),)
    allowed(
        service._session.run(
            node.rollouts.start(rollout(EventType.REBOOT, "idle", notice=2 * DAY, windows=windows))
        )
    )


def place_halts(service: Service) -> None:
    """A halt that was released, and one that stands, of a group in which nothing is to start."""
    halts = service._session.node.halts
    released = allowed(service._session.run(halts.place(by="operator", note="smoke")))
    allowed(service._session.run(halts.release(released.halt.id, "operator", "no smoke")))
    allowed(service._session.run(halts.place(by="operator", groups=["idle"], label="!tier")))


def rollout(type: EventType, group: str, **options: Any) -> RolloutRequest:
    return RolloutRequest(type=type, selection=Selection(groups=(group,)), by="operator", **options)


def create_tokens(service: Service) -> None:
    """Tokens, when they were used, and a request with a key."""
    node = service._session.node
    now = node.writer.now()
    options: dict[str, dict[str, Any]] = {
        "ci": {"limit": Limit(groups=("web",))},
        "old": {"revoked_at": now.at, "revoked_by": "operator"},
    }
    for name, more in options.items():
        token = Token(
            id=f"token-{name}",
            name=name,
            role=Role.OPERATOR,
            digest="0" * 64,
            created_at=now.at,
            created_by="operator",
            expires_at=now.at + DAY,
            **more,
        )
        plan = CommitPlan(puts=[TokenPut(token, "created", "operator")])
        service._session.run(node.writer.commit(plan))
    key = Key("ci", "deploy-1", "f" * 64)
    service._session.run(node.store.transact(lambda _: Batch(now.at, now.lost, key=key)))
    service._session.run(node.store.save_answer(key, 201, b'{"event":"A"}'))
    service._session.run(node.store.save(PollSightings(seen={}, used={"token-ci": now.at})))


def allowed(outcome: T | Refused) -> T:
    assert not isinstance(outcome, Refused), outcome
    return outcome


def contents(service: Service) -> dict[str, Any]:
    """The state, as this code reads it."""
    node, store = service._session.node, service._session.node.store
    documents = {
        machine.name: {
            version: service.get(machine.name, version).body.decode() for version in BY_NAME
        }
        for group in store.groups.values()
        if group.enabled
        for machine in group.machines
        if not machine.gone
    }
    service._session.run(node.poll_index.save(node.writer.now(), all_machines=True))
    return {
        "schema": SCHEMA_VERSION,
        "fleet": FLEET,
        "seq": store.seq,
        "groups": dict(store.groups),
        "hosts": dict(store.registry.hosts),
        "rollouts": dict(store.registry.rollouts),
        "tokens": dict(store.registry.tokens),
        "halts": dict(store.registry.halts),
        "past": service._session.run(store.past_events(limit=1_000)),
        "history": service._session.run(store.history(HistoryQuery(limit=100_000))),
        "sightings": service._session.run(store.sightings()),
        "documents": documents,
    }


def main() -> None:
    refuse_released(HERE / f"{SCHEMA_VERSION}.db.gz", "a change of what it stores is a new schema")
    with tempfile.TemporaryDirectory() as directory:
        state = Path(directory) / "state.db"
        with Service(FLEET, state=state, new_id=new_ids()) as service:
            run_events(service)
            expected = contents(service)
        packed = gzip.compress(state.read_bytes(), 9, mtime=0)
    (HERE / f"{SCHEMA_VERSION}.db.gz").write_bytes(packed)
    text = msgspec.json.format(msgspec.json.encode(expected), indent=1)
    (HERE / f"{SCHEMA_VERSION}.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))
    sys.stdout.write(f"{SCHEMA_VERSION}: {expected['seq']} commits\n")


if __name__ == "__main__":
    main()
