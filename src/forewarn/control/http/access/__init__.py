"""Access control of the API: who the caller is, and what the caller may do."""
