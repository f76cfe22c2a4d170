"""Inside a machine: what is about to happen to it."""
