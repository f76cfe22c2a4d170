"""YAML in which every value has a position: streaming values, and the lines of errors."""
