"""Guests served by nodes on their hosts, which learn the documents from control."""
