"""Guests served by worker processes, which learn the documents from a control process."""
