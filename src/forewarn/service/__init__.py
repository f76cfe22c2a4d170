"""What runs: clock, ledger, scheduler, writer, carrier, feed, witness. Knows nothing of HTTP."""
