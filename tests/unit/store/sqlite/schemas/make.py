"""Makes the stored database of a schema, with the code that wrote that schema: see README.md.

Run by hand, once for each schema, never by the tests. It leads a small life in a real service on
a virtual clock and writes down, in that code's own words, what was so at its end.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from forewarn.core import EventType
from forewarn.service.engine.writer import CommitPlan
from forewarn.store.sqlite.schema import SCHEMA_VERSION
from forewarn.testing import Service
from forewarn.wire.versions import BY_NAME

DAY = 24 * 3600 * 1_000_000
HERE = Path(__file__).parent

GROUPS = """
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, update_domain: 0, HOST1}
      - {name: web_1, update_domain: 1, HOST2}
      - {name: web_2, update_domain: 0, HOST1, spot: true}
      - {name: web_3, update_domain: 2, HOST2}
  - name: sql
    kind: availability-set
    machines:
      - {name: sql-0, update_domain: 0, HOST1, tags: {tier: gold}}
      - {name: sql-1, update_domain: 1, HOST3}
  - name: idle
    kind: standalone
    machines:
      - {name: idle, update_domain: 0}
"""


def fleet() -> str:
    if SCHEMA_VERSION == "0001":
        return (
            GROUPS.replace("HOST1, ", "")
            .replace(", HOST1", "")
            .replace(", HOST2", "")
            .replace(", HOST3", "")
        )
    text = GROUPS
    for n in (1, 2, 3):
        text = text.replace(f"HOST{n}", f"host: rack-{n}")
    return "hosts: [rack-1, rack-2, {name: rack-3, labels: {row: west}}, rack-4]" + text


def ids() -> Any:
    count = itertools.count(1)
    return lambda: f"00000000-0000-4000-8000-{next(count):012X}"


def life(service: Any) -> None:
    """Events of every status, in the ways that each comes about."""
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
    service.clock.advance("9m")
    service.clock.interrupt("7m")
    service.clock.advance("3m")
    assert service.run(service.node.platform.event(by_notice.id)).status.value == "Started"
    service.clock.advance("5m")
    service.schedule("Reboot", "idle", notice="3d")  # never shown: nobody listens there
    service.clock.advance("30m")
    service.disable("sql")
    service.get("sql-0")
    if SCHEMA_VERSION >= "0002":
        beside(service)
    if SCHEMA_VERSION >= "0003":
        guarded(service)
    started = service.schedule("Freeze", "web_1", duration=5)
    service.approve("web_1", started)
    waiting = service.schedule("Reboot", "web_3", notice="2h")
    service.approve("web_3", waiting)  # approved, but another domain is disturbed
    service.restart("sql-1")
    service.schedule("Reboot", "web_0", notice="1d")
    for machine in ("web_0", "web_1", "sql-0"):
        service.get(machine)
    service.run(service.node.poll_index.save(service.node.writer.now()))


def beside(service: Any) -> None:
    """Hosts, departures, readiness, joint events and a rollout."""
    node = service.node
    drafting: Any = importlib.import_module("forewarn.service.rollouts.request")
    lanes: Any = importlib.import_module("forewarn.core.rollouts.lanes")
    service.run(node.hosts.degrade("rack-4", "operator"))
    allowed(service.run(node.removals.evict("web_2", "operator")))
    service.clock.advance("5m")
    how = importlib.import_module("forewarn.service.platform.hosts").How
    allowed(service.run(node.hosts.maintain("rack-1", how("Freeze"), "operator", notice=3 * DAY)))
    event = service.run(node.platform.schedule(type=EventType.FREEZE, machines=("sql-0",), by="x"))
    service.run(node.guests.prepare("sql-0", "sql", event.event.id, True, "drained"))
    wanted = drafting.Wanted(
        type=EventType.FREEZE, selection=lanes.Selection(groups=("web",)), by="operator"
    )
    allowed(service.run(node.rollouts.start(wanted)))
    service.clock.advance("16m")
    done = drafting.Wanted(
        type=EventType.FREEZE, selection=lanes.Selection(groups=("sql",)), by="operator"
    )
    report = allowed(service.run(node.rollouts.start(done)))
    allowed(service.run(node.rollouts.abort(report.rollout.id, "operator", "not today")))
    service.clock.advance("1h")
    under_way = drafting.Wanted(
        type=EventType.REBOOT,
        selection=lanes.Selection(groups=("idle",)),
        by="operator",
        notice=2 * DAY,
    )
    allowed(service.run(node.rollouts.start(under_way)))


def guarded(service: Any) -> None:
    """Tokens, when they were used, and requests with a key."""
    node = service.node
    access: Any = importlib.import_module("forewarn.core.access")
    registry: Any = importlib.import_module("forewarn.core.registry")
    port: Any = importlib.import_module("forewarn.store.port")
    now = node.writer.now()
    for name, more in (
        ("ci", {"limit": access.Limit(groups=("web",))}),
        ("old", {"revoked_at": now.at, "revoked_by": "operator"}),
    ):
        token = access.Token(
            id=f"token-{name}",
            name=name,
            role=access.Role.OPERATOR,
            digest="0" * 64,
            created_at=now.at,
            created_by="operator",
            expires_at=now.at + DAY,
            **more,
        )
        service.run(
            node.writer.commit(CommitPlan(puts=[registry.TokenPut(token, "created", "operator")]))
        )
    key = port.Key("ci", "deploy-1", "f" * 64)
    service.run(node.store.transact(lambda _: port.Batch(now.at, now.lost, key=key)))
    service.run(node.store.answered(key, 201, b'{"event":"A"}'))
    service.run(node.store.save(port.Sightings(seen={}, used={"token-ci": now.at})))


def allowed(outcome: Any) -> Any:
    assert not hasattr(outcome, "message"), outcome
    return outcome


def expectations(service: Any) -> dict[str, Any]:
    """What is so, as this code says it."""
    store = service.node.store
    found: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "fleet": fleet(),
        "seq": store.seq,
        "groups": dict(store.groups),
        "past": service.run(store.past(limit=1_000)),
        "sightings": service.run(store.sightings()),
        "documents": {
            machine.name: {
                version: service.get(machine.name, version).body.decode() for version in BY_NAME
            }
            for group in store.groups.values()
            if group.enabled
            for machine in group.machines
            if not getattr(machine, "gone", "")
        },
    }
    with contextlib.suppress(AttributeError):
        registry = store.registry
        found |= {name: dict(getattr(registry, name)) for name in registry.__struct_fields__}
        port: Any = importlib.import_module("forewarn.store.port")
        found["history"] = service.run(store.history(port.Wanted(limit=100_000)))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch) / "state.db"
        with Service(fleet(), state=state, new_id=ids()) as service:
            life(service)
            expected = expectations(service)
        packed = gzip.compress(state.read_bytes(), 9, mtime=0)
    (HERE / f"{SCHEMA_VERSION}.db.gz").write_bytes(packed)
    text = msgspec.json.format(msgspec.json.encode(expected), indent=1)
    (HERE / f"{SCHEMA_VERSION}.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))
    sys.stdout.write(f"{SCHEMA_VERSION}: {expected['seq']} commits\n")


if __name__ == "__main__":
    main()
