"""What is started by entering its context, and ends all that it has started when that is left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self


class Component(ABC):
    def __init__(self) -> None:
        self._stack = AsyncExitStack()  # of what has to be ended

    @abstractmethod
    async def _start(self) -> None: ...

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
