"""When a copy has become the state: what was shown and numbered since the copy was made is not
known, so numbers go on where none of it can have come.

Guests compare incarnations, and followers of the feed resume after a commit's number; neither
may take something else for what it has.
"""

from __future__ import annotations

from collections.abc import Iterable

from forewarn.core.changes import Change, Renumbered
from forewarn.core.group import Group
from forewarn.core.time import SECOND, Duration

# More than a group's document, or a service's commits, can have moved on within the time that
# is not known. Two restores of one copy leave different numbers, as they come at different times.
DOCUMENTS_LEAST, DOCUMENTS_PER_SECOND = 1_000, 10
COMMITS_LEAST, COMMITS_PER_SECOND = 1_000_000, 10_000


def beyond_documents(unknown: Duration) -> int:
    return DOCUMENTS_LEAST + DOCUMENTS_PER_SECOND * _seconds(unknown)


def beyond_commits(unknown: Duration) -> int:
    return COMMITS_LEAST + COMMITS_PER_SECOND * _seconds(unknown)


def renumbered(groups: Iterable[Group], unknown: Duration) -> dict[str, tuple[Change, ...]]:
    """What happens to each group that has a document; `unknown` is how long ago the copy ends."""
    beyond = beyond_documents(unknown)
    return {
        group.name: (Renumbered(group.incarnation + beyond),) for group in groups if group.enabled
    }


def _seconds(unknown: Duration) -> int:
    return -(-max(unknown, 0) // SECOND)
