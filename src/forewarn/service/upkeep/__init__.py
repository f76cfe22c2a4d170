"""Maintenance of the stored state: pruning, history, and what follows a restore."""
