"""Reads traces and the documents in them leniently, for verdicts, timelines and recordings."""
