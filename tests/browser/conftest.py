"""All tests of a process share one browser."""

from __future__ import annotations

from helpers.browser import browser as browser
