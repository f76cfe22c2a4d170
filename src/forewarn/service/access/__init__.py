"""Tokens of the control API."""
