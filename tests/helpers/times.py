"""Times of the kit's virtual clock in microseconds since 1970, as the service counts them."""

from __future__ import annotations

from forewarn.support.instants import from_datetime
from forewarn.testing.kit import service

START = from_datetime(service.START)
