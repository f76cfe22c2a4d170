"""When maintenance may start: windows, blackouts, and what may be postponed. Pure."""
