"""Events of a scenario that are carried out in another way than they were announced."""

from __future__ import annotations

from forewarn.core import Refused
from forewarn.testing import Impact, Service
from forewarn.testing.scenarios.engine.schedule_verb import schedule
from forewarn.testing.scenarios.file.timeline_shapes import Schedule


def test_a_machine_that_is_to_reboot_only_freezes_and_freezes_again_while_it_is_started() -> None:
    with Service() as service:
        web = service.scale_set("web", 2)
        service.get("web_0")
        felt: list[tuple[str, str, float | None]] = []
        web[0].on_impact(lambda impact: felt.append(_felt(impact)))
        entry = Schedule(
            type="Reboot",
            machine="web_0",
            duration=9,
            happens="Freeze",
            second_after="2m",
            second_duration=3,
        )
        outcome = service._session.run(schedule(service._session.node, entry))
        assert not isinstance(outcome, Refused)
        [event] = service.events
        service.approve("web_0", event)
        assert (event.type, event.status) == ("Reboot", "Started")
        first, second = ("Freeze", "begins", 9.0), ("Freeze", "begins", 3.0)
        service.clock.advance("1s")
        assert felt == [first]
        service.clock.advance("1m")
        assert felt == [first, ("Freeze", "ends", 9.0)]
        service.clock.advance("2m")
        assert event.status == "Started"
        assert felt[2:] == [second, ("Freeze", "ends", 3.0)]
        service.clock.advance("20m")
        assert (event.status, len(felt)) == ("Finished", 4)


def _felt(impact: Impact) -> tuple[str, str, float | None]:
    return impact.type, impact.phase, impact.seconds
