"""Judges the course of events: notice, approvals, starts, impacts and ends."""
