"""The next steps of each case. Pure functions."""
