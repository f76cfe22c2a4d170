"""The service inside a test."""
