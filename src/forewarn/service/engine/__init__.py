"""What drives the service: its clock, state, scheduler and writer, and the execution of events."""
