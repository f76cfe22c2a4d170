"""The routes of the control API, a module for each subject."""
