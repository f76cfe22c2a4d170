"""Traces and the documents in them, read leniently, for everything that follows or replays them."""
