"""The control API's connections."""
