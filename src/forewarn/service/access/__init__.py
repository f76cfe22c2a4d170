"""Tokens, and who may use them."""
