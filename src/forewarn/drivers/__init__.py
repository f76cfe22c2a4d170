"""Carrying an event out: a port and its adapters. Never when to; that has been decided."""
