"""169.254.169.254 for programs that know no other address, and a clock for them.

`Enclosure` is a network namespace in which that address is the service; `FakeTime` makes a
program's clock follow the service's. Both are for Linux, and for programs one does not change.
"""

from forewarn.testing.enclosure.enclosure import INSIDE, CannotEnclose, Enclosure
from forewarn.testing.enclosure.fake_time import FakeTime, NoFakeTime
from forewarn.testing.enclosure.messages import Network

__all__ = ["INSIDE", "CannotEnclose", "Enclosure", "FakeTime", "Network", "NoFakeTime"]
