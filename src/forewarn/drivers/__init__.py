"""Drivers, which carry events out: a port and its adapters. When to act is decided elsewhere."""
