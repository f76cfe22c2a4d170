"""The test kit: the real service inside a test, with time one can wind forward."""

from forewarn.testing.service import Answer, Clock, Service

__all__ = ["Answer", "Clock", "Service"]
