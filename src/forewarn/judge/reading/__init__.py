"""Recordings as the judge reads them: lines, fleets, documents, and what was before what."""
