"""Rules without a network: answers by a script, on a clock that moves only when a step says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeAlias, TypeVar

from forewarn.client.events import Snapshot
from forewarn.client.rules import ClientProtocol
from forewarn.client.steps import Call, Deliver, Location, Request, Response, Sleep, Steps

HERE = Location("127.0.0.1", 8169)
EVENT = {
    "EventId": "28512AF7-C957-4500-9BC4-842D6FB531E4",
    "EventStatus": "Scheduled",
    "EventType": "Reboot",
    "ResourceType": "VirtualMachine",
    "Resources": ["web_0"],
    "NotBefore": "Wed, 24 Jan 2018 21:20:44 GMT",
}
T = TypeVar("T")
Script: TypeAlias = Callable[[Request], Response | tuple[Response, float]]


def body(*events: dict[str, Any], incarnation: int = 1) -> bytes:
    return json.dumps({"DocumentIncarnation": incarnation, "Events": list(events)}).encode()


def answer(status: int, output: bytes = b"", **headers: str) -> Response:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Response(status=status, headers=named, body=output, sent_at=0.0, received_at=0.0)


def document(*events: dict[str, Any], tag: str = '"t"') -> Response:
    return answer(200, body(*events), etag=tag)


def trouble(kind: str) -> Response:
    return Response(failure=kind, sent_at=0.0, received_at=0.0)


def is_wait(ask: Request) -> bool:
    return ask.target.startswith("/forewarn/v1/wait")


def version(ask: Request) -> str:
    return ask.target.partition("api-version=")[2][:10]


class ScriptedExchanges:
    """`script` answers each request, perhaps with the seconds that it takes."""

    def __init__(
        self,
        script: Script,
        *,
        endpoint: Location | None = HERE,
        well_known: Location = HERE,
        **settings: Any,
    ) -> None:
        self.now = 1_000.0
        self.script = script
        self.asks: list[Request] = []
        self.rests: list[float] = []
        self.rules = ClientProtocol(endpoint, well_known, clock=lambda: self.now, **settings)

    def done(self, steps: Steps[T]) -> T:
        """Until it is answered."""
        reply: Any = None
        while True:
            try:
                reply = self._step(steps.send(reply))
            except StopIteration as over:
                result: T = over.value
                return result

    def snapshots(
        self, within: Callable[[], float] | None = None, **which: Any
    ) -> Iterator[Snapshot]:
        steps: Generator[Any, Any, None] = self.rules.snapshots(within, **which)
        reply: Any = None
        while True:
            step = steps.send(reply)
            reply = self._step(step)
            if isinstance(step, Deliver):
                yield step.snapshot

    def until(self, seconds: float, wanted: Callable[[], float] | None = None) -> list[Snapshot]:
        """What is told in so many seconds."""
        steps, end, reported = self.rules.snapshots(wanted), self.now + seconds, []
        reply: Any = None
        while self.now < end:
            step = steps.send(reply)
            reply = self._step(step)
            reported += [step.snapshot] if isinstance(step, Deliver) else []
        return reported

    @property
    def polls(self) -> list[Request]:
        return [ask for ask in self.asks if not is_wait(ask)]

    @property
    def waits(self) -> list[Request]:
        return [ask for ask in self.asks if is_wait(ask)]

    def _step(self, step: Any) -> Any:
        if isinstance(step, Call):
            return step.function()
        if isinstance(step, Sleep):
            assert 0 < step.seconds < 3_600
            self.rests.append(step.seconds)
            self.now += step.seconds
        if not isinstance(step, Request):
            return None
        self.asks.append(step)
        output = self.script(step)
        came, took = output if isinstance(output, tuple) else (output, 0.01)
        self.now += took
        return came
