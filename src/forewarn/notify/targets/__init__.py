"""Where notifications are sent: one module for each way to send them."""
