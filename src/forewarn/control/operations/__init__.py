"""The operations of the control API, by subject, without the server that carries them out."""
