"""Rollouts: their plan, their windows and lanes, their progress, and the next step. Pure."""
