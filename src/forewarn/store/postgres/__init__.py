"""The PostgreSQL engine: one state for several control nodes, one of which decides."""
