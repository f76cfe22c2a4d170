"""The dialect, both ways; imports nothing else of forewarn."""
