"""Measurements, as ratios against a peer in the same run. Never part of the tests."""
