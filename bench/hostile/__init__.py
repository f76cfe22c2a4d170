"""Guests that attack others: `make bench BENCH=hostile`."""
