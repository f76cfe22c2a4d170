"""The OpenAPI document and the manual that is rendered from it."""
