"""forewarn: Scheduled Events for any fleet.

The public API is what this module, `forewarn.client` and `forewarn.testing` export;
every other module is private and free to move.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
