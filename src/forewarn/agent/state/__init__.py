"""The agent's state on disk."""
