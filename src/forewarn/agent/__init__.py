"""The agent: a program inside a machine that runs hooks for events and approves them."""
