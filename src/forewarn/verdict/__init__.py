"""What guests did about the events they were told of, and whether that was well done.

Read off a trace (docs/reference/traces.md) alone, so that a recording, a running service and a test
are judged alike. `observer` hears the lines, `report` says what was made of them, `rules` what is
expected; docs/test/verdict.md explains it all.
"""
