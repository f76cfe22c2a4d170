"""From a socket to the application: the fast path for known polls, and HTTP for everything else."""
