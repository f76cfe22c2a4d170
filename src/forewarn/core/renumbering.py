"""Numbers after a restore: incarnations and commit numbers jump ahead.

Which numbers were used after the backup was made is not known. Guests compare incarnations, and
readers of the feed resume after a commit's number; neither must find a number that it has seen
with other contents. So numbering continues beyond anything that can have been used.
"""

from __future__ import annotations

from collections.abc import Iterable

from forewarn.core.changes import Change, Renumbered
from forewarn.core.group import Group
from forewarn.core.time import SECOND, Duration

# More numbers than a group's document, or a service's commits, can use in the unknown time. Two
# restores of one backup continue with different numbers, because they happen at different times.
DOCUMENTS_LEAST, DOCUMENTS_PER_SECOND = 1_000, 10
COMMITS_LEAST, COMMITS_PER_SECOND = 1_000_000, 10_000


def beyond_documents(unknown: Duration) -> int:
    """Return how far to advance incarnations after `unknown` time without a record."""
    return DOCUMENTS_LEAST + DOCUMENTS_PER_SECOND * _seconds(unknown)


def beyond_commits(unknown: Duration) -> int:
    """Return how far to advance the number of commits after `unknown` time without a record."""
    return COMMITS_LEAST + COMMITS_PER_SECOND * _seconds(unknown)


def renumbered(
    groups: Iterable[Group], unknown: Duration, known: int = 0
) -> dict[str, tuple[Change, ...]]:
    """Return the changes by group; each may have had documents since. `unknown` is the time since
    the backup was made, and `known` the highest commit that was known: a document has changed at
    most once with each."""
    beyond = beyond_documents(unknown) + known
    return {group.name: (Renumbered(_highest(group) + beyond),) for group in groups}


def beyond_groups(groups: Iterable[Group], unknown: Duration = 0, known: int = 0) -> int:
    """Return a number above which documents begin of groups that are defined after a restore: they
    may have been there before. All others are numbered beyond the unknown time by then."""
    return max(map(_highest, groups), default=beyond_documents(unknown) + known)


def _highest(group: Group) -> int:
    return max(group.incarnation, group.shown)


def _seconds(unknown: Duration) -> int:
    return -(-max(unknown, 0) // SECOND)
