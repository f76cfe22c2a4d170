"""Approving events, alone or together with other machines."""
