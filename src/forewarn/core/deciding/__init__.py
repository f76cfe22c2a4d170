"""Decisions: from a command and the state of a group to changes, or a refusal. Pure functions."""
