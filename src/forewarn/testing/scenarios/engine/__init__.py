"""Playing a scenario on a service."""
