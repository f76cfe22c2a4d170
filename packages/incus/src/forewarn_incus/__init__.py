"""Carry forewarn's events out on the instances of Incus, or of LXD, whose API is the same: a driver
for `forewarn.drivers`.

`forewarn_incus.driver:DRIVER` is what the entry point leads to; everything else is private.
"""

__version__ = "0.1.0"
