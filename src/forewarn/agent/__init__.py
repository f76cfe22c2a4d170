"""The agent: a program inside a machine that runs hooks before and after events and approves
them."""
