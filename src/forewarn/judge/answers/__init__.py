"""Judges what was answered: status, headers, documents and their numbers."""
