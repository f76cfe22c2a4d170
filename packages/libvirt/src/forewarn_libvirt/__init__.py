"""Carry forewarn's events out on the domains of libvirt: a driver for `forewarn.drivers`.

`forewarn_libvirt.driver:DRIVER` is what the entry point leads to; everything else is private.
"""

__version__ = "0.1.0"
