"""What the platform costs: applying, deciding, and the like. Measured, never asserted."""
