"""Checks of settings against the machine they are for."""
