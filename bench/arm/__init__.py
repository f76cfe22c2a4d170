"""Azure Resource Manager's API over a large fleet, beside the control API."""
