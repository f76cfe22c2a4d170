"""A node of the first version, with the first protocol, as far as control can tell. It shares
nothing with the messages of today, and is never changed: hosts that were not upgraded run it.

It has no machine of its own: it confirms what it is told, and sends what it sent then, among it a
`pulse` as its sign of life, which is not a message any more.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

Message = dict[str, Any]


class FrozenNode:
    def __init__(
        self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.host = host
        self._reader, self._writer = reader, writer
        self.welcome: Message = {}
        self.joined = False
        self.promises = 0
        self.pongs = 0
        self.shown: dict[str, Any] = {}  # by group: its view
        self.answers: dict[int, Message] = {}
        self._reported: dict[
            int, dict[str, Any]
        ] = {}  # by publication: views that are not shown yet
        self._snapshot: dict[str, Any] = {}

    def close(self) -> None:
        self._writer.close()

    def send(self, type: str, **fields: object) -> None:
        data = msgspec.msgpack.encode({"type": type, **fields})
        self._writer.write(len(data).to_bytes(4, "big") + data)

    async def receive(self) -> Message:
        length = int.from_bytes(await self._reader.readexactly(4), "big")
        message: Message = msgspec.msgpack.decode(await self._reader.readexactly(length))
        return message

    async def greet(self, **other: object) -> None:
        """Say who it is, with other values than usual."""
        values = {
            "protocols": [1],
            "version": "0.1.0",
            "host": self.host,
            "instance": "0123456789abcdef0123456789abcdef",
            "serving": False,
            "term": 0,
            "arriving": {},
        }
        self.send("node", **(values | other))
        self.welcome = await self.receive()
        self.send("ping", sent=1.5)

    async def follow(self) -> None:
        """Take what control sends, until the line is closed."""
        while True:
            self._take(await self.receive())

    def pulse(self) -> None:
        """Say that it is there, as nodes did before they sent a ping."""
        self.send("pulse", readings=[])

    def approve(self, id: int, machine: str, group: str, events: list[str]) -> None:
        self.send("approve", id=id, machine=machine, group=group, ids=events)

    def enable(self, id: int, group: str) -> None:
        self.send("enable", id=id, group=group)

    def report(self, machine: str, group: str, events: list[str], at: int) -> None:
        polled = [machine, group, "2020-07-01", 1, events, at, at, 1]
        self.send("report", polled=[polled], alive=[], unknown=[])

    def _take(self, message: Message) -> None:
        match message["type"]:
            case "slice":
                self._snapshot |= {g["view"]["name"]: g["view"] for g in message["groups"]}
            case "whole":
                self.send("held", number=message["number"], whole=True)
            case "joined":
                self.shown, self.joined = self._snapshot, True
            case "news":
                for number, groups in message["publications"]:
                    views = {g["view"]["name"]: g["view"] for g in groups}
                    self._reported.setdefault(number, {}).update(views)
                if not message.get("more"):
                    self.send("held", number=message["publications"][-1][0], whole=False)
            case "shown":
                for number in message["numbers"]:
                    self.shown |= self._reported.pop(number, {})
            case "promise":
                self.promises += 1
            case "pong":
                self.pongs += 1
            case "answer":
                self.answers[message["id"]] = message
            case "goodbye":
                pass
            case other:  # which ended a line then
                raise AssertionError(f"a node of the first version does not know '{other}'")
