"""How faults of local processes are injected: by signals."""
