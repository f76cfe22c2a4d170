"""The running service: its engine, indexes, verbs, rollouts, fleet and telemetry, without HTTP."""
