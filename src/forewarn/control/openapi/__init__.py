"""The OpenAPI document, and the HTML page that is rendered from it."""
