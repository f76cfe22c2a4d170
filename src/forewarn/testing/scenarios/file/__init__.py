"""Reading scenario files."""
