"""`forewarn agent check` and `forewarn agent test`."""
