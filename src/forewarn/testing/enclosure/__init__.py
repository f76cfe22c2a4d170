"""A network and a clock of its own for a program under test that cannot be changed. Linux only.

`Enclosure` is a network namespace in which 169.254.169.254 is the service; `FakeTime` makes a
program's clock follow the service's. Names are imported when they are used: on other systems they
cannot be.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn.testing.enclosure.enclosure import INSIDE, CannotEnclose, Enclosure
    from forewarn.testing.enclosure.fake_time import FakeTime, NoFakeTime
    from forewarn.testing.enclosure.messages import Network

__all__ = ["INSIDE", "CannotEnclose", "Enclosure", "FakeTime", "Network", "NoFakeTime"]

_MODULES = {
    "INSIDE": "enclosure",
    "CannotEnclose": "enclosure",
    "Enclosure": "enclosure",
    "FakeTime": "fake_time",
    "Network": "messages",
    "NoFakeTime": "fake_time",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
