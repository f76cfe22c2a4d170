"""The metadata endpoint as an ASGI application."""
