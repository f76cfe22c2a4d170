"""The metadata endpoint as an ASGI application: callers, documents, limits, metrics. No sockets."""
