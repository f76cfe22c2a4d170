"""The metadata endpoint that guests poll.

`http` (connections, parsing, the fast path for ordinary polls) and `faults` (defective answers that
are injected on purpose) build on `endpoint` (the ASGI application with its callers, documents and
limits), which reads and changes the service's state only through the port in `upstream`.
`publishing` implements that port for nodes on hosts.
"""
