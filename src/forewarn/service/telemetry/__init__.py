"""Logs, metrics, health and the event trace."""
