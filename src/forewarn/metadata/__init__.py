"""The guests' face: who asks, what they may see, and the bytes they get. Never `control`."""
