"""From the service's values to those of the control API."""
