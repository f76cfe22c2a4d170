"""What guests say that cannot be stored as it is, or that names events that do not exist."""

from __future__ import annotations

import asyncio

from forewarn.core import Event, Refused
from forewarn.core.refusal import Reason
from forewarn.testing import SAMPLE, Service


def test_a_note_is_stored_without_invalid_characters() -> None:
    with Service(SAMPLE) as service:
        service.get("web_0")
        event = service.schedule("Reboot", "web_0")
        guests = service._session.node.guests
        service._session.run(guests.prepare("web_0", "web", event.id, True, "dra\0ined"))
        (ready,) = service._session.node.store.groups["web"].events[0].ready
        assert ready.note == "dra\ufffdined"


def test_an_id_that_cannot_be_stored_is_one_that_does_not_exist() -> None:
    asked: list[str] = []
    with Service(SAMPLE) as service:
        store = service._session.node.store
        lookup = store.ended_events

        async def ended_events(ids: tuple[str, ...]) -> object:
            asked.extend(ids)
            return await lookup(ids)

        store.ended_events = ended_events  # type: ignore[method-assign, assignment]
        guests = service._session.node.guests
        decision = service._session.run(guests.approve("web_0", "web", ["A\0"]))
        assert isinstance(decision, Refused)
        assert decision.reason is Reason.UNKNOWN
    assert asked == ["A\ufffd"]


def test_ids_are_looked_up_for_one_request_at_a_time() -> None:
    under_way, most = 0, 0

    async def ended_events(_ids: set[str]) -> dict[str, Event]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(5):
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        under_way -= 1
        return {}

    with Service(SAMPLE) as service:
        service._session.node.store.ended_events = ended_events  # type: ignore[method-assign, assignment]
        approve = service._session.node.guests.approve

        async def together() -> list[object]:
            return await asyncio.gather(*(approve("web_0", "web", [f"A{n}"]) for n in range(8)))

        assert all(isinstance(decision, Refused) for decision in service._session.run(together()))
    assert most == 1


def test_ids_of_another_machine_are_looked_up_before_the_next_request_of_one_that_sends_many() -> (
    None
):
    asked: list[str] = []

    async def ended_events(ids: set[str]) -> dict[str, Event]:
        asked.extend(ids)
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        return {}

    with Service(SAMPLE) as service:
        service._session.node.store.ended_events = ended_events  # type: ignore[method-assign, assignment]
        approve = service._session.node.guests.approve

        async def together() -> None:
            many = [approve("web_0", "web", [f"A{n}"]) for n in range(8)]
            await asyncio.gather(*many, approve("web_1", "web", ["B"]))

        service._session.run(together())
    assert asked[:2] == ["A0", "B"]


def test_many_ids_that_do_not_exist_are_looked_up_once_beside_those_that_do() -> None:
    asked: list[set[str]] = []
    unknown = {f"00000000-0000-0000-0000-{n:012X}" for n in range(1_000)}
    with Service(SAMPLE) as service:
        service.get("web_0")
        event = service.schedule("Reboot", "web_0")
        over = service.schedule("Reboot", "web_1")
        service.document("web_0")
        service._session.run(service._session.node.platform.cancel(over.id, "test"))
        store = service._session.node.store
        lookup = store.ended_events

        async def ended_events(ids: set[str]) -> object:
            asked.append(set(ids))
            return await lookup(ids)

        store.ended_events = ended_events  # type: ignore[method-assign, assignment]
        guests = service._session.node.guests

        def approve(ids: set[str]) -> object:
            return service._session.run(guests.approve("web_0", "web", [event.id, *sorted(ids)]))

        assert isinstance(approve({over.id, *unknown}), Refused)
        assert asked == [{over.id, *unknown}]
        assert event.status == "Scheduled"
        assert not isinstance(approve({over.id}), Refused)
        assert event.status == "Started"
    assert asked[1:] == [{over.id}]
