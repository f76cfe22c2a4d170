"""Running the commands of hooks."""
