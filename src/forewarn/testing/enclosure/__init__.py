"""A network and a clock of its own for a program under test that cannot be changed. Linux only.

`Enclosure` is a network namespace in which 169.254.169.254 is the service; `FakeTime` makes a
program's clock follow the service's.
"""

from forewarn.testing.enclosure.enclosure import INSIDE, CannotEnclose, Enclosure
from forewarn.testing.enclosure.fake_time import FakeTime, NoFakeTime
from forewarn.testing.enclosure.messages import Network

__all__ = ["INSIDE", "CannotEnclose", "Enclosure", "FakeTime", "Network", "NoFakeTime"]
