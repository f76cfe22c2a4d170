"""A client of the control API."""
