"""On a fleet, where machines are known by their addresses: a caller from any other is named."""

from __future__ import annotations

import pytest

from forewarn.control.views import core
from forewarn.core import Machine
from forewarn.service.indexes.unknown_callers import UnknownCaller
from forewarn.testing import Service
from helpers.endpoint import fleet_of, known_by_source, port_of
from helpers.polls import metrics
from helpers.raw_http import RawConnection

GET = (
    b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\nHost: x\r\n"
    b"Metadata: true\r\n\r\n"
)


@pytest.mark.parametrize("front", [True, False], ids=["front", "no front"])
def test_a_caller_from_an_unknown_address_is_named(front: bool) -> None:
    service = known_by_source(Service(fleet_of(1), sockets=True, front=front))
    with service:
        place = "127.0.0.1", port_of(service)
        for source in ("127.0.9.77", "127.0.9.77", "127.0.9.78", service.addresses["web0_0"]):
            line = RawConnection(place, source=source)
            line.send(GET)
            expected = 200 if source == service.addresses["web0_0"] else 404
            assert line.answer().status == expected
            line.close()
        callers = service._session.node.poll_index.unknown_callers.all()
        assert {c.address: c.requests for c in callers} == {"127.0.9.77": 2, "127.0.9.78": 1}
        found = metrics(service.control_url)
        assert found["forewarn_unknown_callers"] == 2
        assert found["forewarn_unknown_caller_requests_total"] == 3


@pytest.mark.parametrize(
    ("hosts", "named"),
    [(["h1"], ("web_0", "h1")), (["h2"], ("web_0", "")), (["h1", "h3"], ("", "")), ([], ("", ""))],
)
def test_a_caller_is_named_if_one_machine_has_its_address_on_another_host(
    hosts: list[str], named: tuple[str, str]
) -> None:
    having = [Machine(name=f"web_{n}", host=host) for n, host in enumerate(hosts)]
    caller = core.unknown_caller(UnknownCaller("10.0.0.1", 1, 1, 1, host="h2"), having)
    assert (caller.machine, caller.known_host) == named
