"""What the test kit costs: to import, to start, to stop, and to use. Measured, never asserted."""
