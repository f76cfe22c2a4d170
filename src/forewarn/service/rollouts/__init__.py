"""Carrying rollouts out."""
