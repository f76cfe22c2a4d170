"""What the agent costs while nothing happens. Measured, never asserted."""
