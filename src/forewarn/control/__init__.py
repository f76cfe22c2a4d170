"""The operators' face. `schema` and `client` need nothing but msgspec; `app` is the server side."""
