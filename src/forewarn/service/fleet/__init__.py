"""The inventory: reading a fleet file, comparing it with what is known, and applying it."""
