"""A service of several processes: a supervisor, a control process and workers."""
