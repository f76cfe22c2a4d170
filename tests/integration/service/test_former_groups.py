"""Groups that were removed: their names are remembered for as long as the history is."""

from __future__ import annotations

from pathlib import Path

from forewarn.core.time import DAY
from forewarn.service.fleet import edit
from forewarn.testing import Service

FLEET = """
groups:
  - {name: web, kind: standalone, machines: [{name: web-0}]}
  - {name: other, kind: standalone, machines: [{name: other-0}]}
"""
WEB = "{kind: standalone, machines: [{name: web-0}]}"


def remove(service: Service) -> None:
    apply = service._session.node.fleet_apply
    service._session.run(apply.change(edit.remove_group("web"), by="test", force=True))


def create(service: Service) -> int:
    """Create the group again, and return the incarnation of its first document."""
    apply = service._session.node.fleet_apply
    service._session.run(apply.change(edit.put_group("web", WEB), by="test"))
    return int(service.document("web-0")["DocumentIncarnation"])


def prune(service: Service) -> None:
    service._session.run(service._session.node.history.prune())


def test_a_group_that_is_created_again_continues_its_numbers_over_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    with Service(FLEET, state=state) as service:
        assert service.document("web-0")["DocumentIncarnation"] == 1
        service.schedule("Reboot", "web-0")
        remove(service)
    with Service(state=state) as service:
        prune(service)
        assert create(service) == 3
        remove(service)
        service.clock.advance("100d")
        service._session.node.history.keep(90 * DAY)
        prune(service)
        assert "web" not in service._session.node.store.groups
    with Service(state=state) as service:
        assert "web" not in service._session.node.store.groups
        assert "other" in service._session.node.store.groups
        assert create(service) == 1
