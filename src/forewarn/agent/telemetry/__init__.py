"""The agent's log, metrics, health and status."""
