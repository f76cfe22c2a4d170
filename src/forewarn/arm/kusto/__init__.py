"""Queries in the Kusto Query Language, applied to rows. Knows no table."""
