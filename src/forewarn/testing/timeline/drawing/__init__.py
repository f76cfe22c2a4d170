"""The timeline as a picture."""
