"""The revisions of the schema, oldest first. A revision that has been released is never edited."""
