"""Faults that are injected into answers."""
