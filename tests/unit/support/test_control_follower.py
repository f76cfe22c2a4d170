"""Following control from a host: which of several control nodes is followed, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from forewarn.support import control_follower, guard
from forewarn.support.control_follower import ControlFollower
from forewarn.support.message_stream import BrokenConnection
from helpers.waiting import until_async


class Welcome(msgspec.Struct, frozen=True):
    control: str


class Stream:
    """A connection to a control node, which answers a hello when it is told to."""

    def __init__(self, control: str) -> None:
        self.control = control
        self.greeted = asyncio.Event()
        self.answers = asyncio.Event()
        self.lost = asyncio.Event()

    def send(self, _: msgspec.Struct) -> None:
        self.greeted.set()

    async def receive(self) -> Welcome:
        await self.answers.wait()
        if self.lost.is_set():
            raise BrokenConnection("it was cut")
        return Welcome(self.control)

    def cut(self) -> None:
        self.lost.set()
        self.answers.set()


class Follower(ControlFollower[Welcome]):
    """Follows until the connection is lost, and then writes for as long as it takes."""

    def __init__(self, *controls: str) -> None:
        self.streams: dict[str, Stream] = {}
        super().__init__([self._dial_of(control) for control in controls], "h1")
        self.history: list[str] = []
        self.writing = asyncio.Event()
        self.writing.set()

    def _dial_of(self, control: str) -> Any:
        async def dial() -> Stream:
            stream = self.streams[control] = Stream(control)
            return stream

        return dial

    def _hello(self) -> msgspec.Struct:
        return Welcome("")

    def _welcomed(self, greeting: Welcome) -> Welcome:
        return greeting

    async def _follow(self, stream: Any, welcome: Welcome) -> None:
        self.history.append(welcome.control)
        await stream.lost.wait()
        await self.writing.wait()
        self.history.append(f"end of {welcome.control}")
        raise BrokenConnection("it is lost")

    def _note_failure(self, error: Exception) -> None:
        self.problem = str(error)

    async def greeted(self, control: str) -> Stream:
        await until_async(
            lambda: control in self.streams and self.streams[control].greeted.is_set()
        )
        return self.streams[control]


@pytest.fixture(autouse=True)
def _no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_follower, "TURN", 0.0)


def play(follower: Follower, body: Any) -> None:
    async def run() -> None:
        tasks = guard.Tasks()
        tasks.start(follower.run(), "following")
        try:
            await body()
        finally:
            await tasks.end()
            assert all(stream.lost.is_set() for stream in follower.streams.values())

    asyncio.run(run())


def test_the_first_that_accepts_is_followed_and_the_others_are_left_alone() -> None:
    async def body() -> None:
        a, b = await follower.greeted("a"), await follower.greeted("b")
        b.answers.set()
        await until_async(lambda: follower.history == ["b"])
        assert a.lost.is_set()
        assert not b.lost.is_set()

    follower = Follower("a", "b")
    play(follower, body)


def test_of_two_that_accept_at_once_one_is_followed() -> None:
    async def body() -> None:
        a, b = await follower.greeted("a"), await follower.greeted("b")
        a.answers.set()
        b.answers.set()
        await until_async(lambda: len(follower.history) == 1)
        assert a.lost.is_set() != b.lost.is_set()

    follower = Follower("a", "b")
    play(follower, body)


def test_another_one_is_followed_once_that_which_is_silent_has_been_left() -> None:
    async def body() -> None:
        (await follower.greeted("a")).answers.set()
        await until_async(lambda: follower.history == ["a"])
        a, _ = follower.streams["a"], follower.streams.pop("b")
        follower._note_silence(True)
        b = await follower.greeted("b")
        assert not a.lost.is_set()
        follower.writing.clear()
        b.answers.set()
        await until_async(a.lost.is_set)
        assert follower.history == ["a"]  # it is writing
        follower.writing.set()
        await until_async(lambda: follower.history == ["a", "end of a", "b"])
        follower._note_silence(False)
        assert not follower._wanted.is_set()

    follower = Follower("a", "b")
    play(follower, body)


def test_what_accepts_while_the_connection_is_lost_is_followed_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_follower, "MIN_DIAL_PAUSE", 0.0)
    monkeypatch.setattr(control_follower, "MAX_DIAL_PAUSE", 0.0)

    async def body() -> None:
        (await follower.greeted("a")).answers.set()
        await until_async(lambda: follower.history == ["a"])
        a, _ = follower.streams["a"], follower.streams.pop("b")
        follower._note_silence(True)
        b = await follower.greeted("b")
        b.answers.set()
        a.cut()
        follower._note_silence(False)
        await until_async(lambda: follower.history[-1] == "b")
        for _ in range(20):  # turns of the loop, in which the one that was lost ends
            await guard.pause(0)
        assert follower.streams == {"a": a, "b": b}
        assert not b.lost.is_set()
        assert not follower._wanted.is_set()

    follower = Follower("a", "b")
    play(follower, body)


def test_control_is_looked_for_again_when_the_connection_is_lost() -> None:
    async def body() -> None:
        first = await follower.greeted("a")
        first.answers.set()
        await until_async(lambda: follower.history == ["a"])
        first.cut()
        await until_async(lambda: follower.streams["a"] is not first)
        assert follower.problem == "it is lost"
        (await follower.greeted("a")).answers.set()
        await until_async(lambda: follower.history == ["a", "end of a", "a"])

    follower = Follower("a")
    play(follower, body)
