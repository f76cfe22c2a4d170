"""The control API's types, shared by server and client."""
