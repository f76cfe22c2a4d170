"""What keeps events from starting at some time."""
