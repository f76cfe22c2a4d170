"""Conversion of the service's values to the types of the control API."""
