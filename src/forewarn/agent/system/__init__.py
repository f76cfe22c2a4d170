"""Durable files, locks and processes of the operating system."""
