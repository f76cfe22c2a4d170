"""What the platform and its operators can do to machines and hosts."""
