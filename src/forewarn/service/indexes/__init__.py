"""Lookups by machine, host and event, and of polls, kept up to date by every commit."""
