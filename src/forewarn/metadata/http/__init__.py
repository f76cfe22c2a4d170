"""The guests' HTTP server."""
