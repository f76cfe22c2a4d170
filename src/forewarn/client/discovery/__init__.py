"""Finding the metadata endpoint."""
