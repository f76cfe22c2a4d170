"""What a state in PostgreSQL costs, against one in an SQLite file on the same disk."""
