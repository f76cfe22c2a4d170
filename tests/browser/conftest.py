"""The tests of a file share one browser."""

from __future__ import annotations

from helpers.browser import browser as browser
