"""The verdict on clients: what each machine did about each event, and which rules it broke.

It is read from a trace alone, so that recordings, running services and tests are assessed alike.
`observer` reads lines, `rules` lists what is expected of clients, `verdict` is the result; "The
verdict" in the documentation describes it.
"""
