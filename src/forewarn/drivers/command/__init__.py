"""The driver that runs an operator's own program."""
