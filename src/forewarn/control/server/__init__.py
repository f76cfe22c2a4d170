"""The connections of the control API: accepting, limiting and reading them."""
