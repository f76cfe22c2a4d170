"""Inside a machine: acting on what is about to happen to it."""
