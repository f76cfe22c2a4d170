"""Counting what a halt covers, in a fleet of any size."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from forewarn.core import Group, Machine
from forewarn.core.deciding import holds
from forewarn.core.labels import labels_of
from forewarn.core.refusal import Refused
from forewarn.testing import Service

FLEET = """
groups:
  - {name: web, kind: standalone, labels: {tier: web}, machines: [{name: web}]}
"""


def test_machines_are_looked_at_in_a_thread_so_that_guests_are_answered_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: set[int] = set()

    def watched(group: Group, machine: Machine) -> Mapping[str, str]:
        threads.add(threading.get_ident())
        return labels_of(group, machine)

    async def loop_thread() -> int:
        return threading.get_ident()

    with Service(FLEET) as service:
        session, halts = service._session, service._session.node.halts
        monkeypatch.setattr(holds, "labels_of", watched)
        placed = session.run(halts.place(by="ops", label="tier=web"))
        assert not isinstance(placed, Refused)
        assert placed.machines == 1
        assert [report.machines for report in session.run(halts.list())] == [1]
        session.run(halts.release(placed.halt.id, "ops"))
        assert threads
        assert session.run(loop_thread()) not in threads
