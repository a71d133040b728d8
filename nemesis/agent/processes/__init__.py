"""Process faults: signals, memory and CPU time."""
