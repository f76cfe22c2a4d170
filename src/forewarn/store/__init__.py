"""Storage of the service's state: a port, and its engines for SQLite and memory."""

from forewarn.store.memory import MemoryStore
from forewarn.store.port import (
    Batch,
    Commit,
    Entry,
    OutcomeUnknown,
    Store,
    StoreFailed,
    StoreUnusable,
)

__all__ = [
    "Batch",
    "Commit",
    "Entry",
    "MemoryStore",
    "OutcomeUnknown",
    "Store",
    "StoreFailed",
    "StoreUnusable",
]
