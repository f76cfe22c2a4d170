"""Files with a rule of their own: locked ones, secrets, and the tasks of programs."""
