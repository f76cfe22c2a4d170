"""Running a node as a process: signals, reloading, and the service manager."""
