"""Twins: workers that handle Scheduled Events well, and the same worker with one mistake each."""
