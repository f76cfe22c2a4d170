"""Sockets, TLS and servers."""
