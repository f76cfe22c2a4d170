"""Carry forewarn's events out on the guests of Proxmox VE: a driver for `forewarn.drivers`.

It is a beginning, written from the documentation of Proxmox VE's API, and was never run against
one: only against a pretended server that answers as the documentation says.
"""

__version__ = "0.1.0.dev0"
