"""Where state is kept: a port, and its adapters for SQLite and memory. Decides nothing."""

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
