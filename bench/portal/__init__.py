"""What the portal costs a browser, and what an open portal costs guests."""
