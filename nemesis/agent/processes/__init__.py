"""Process faults: signals, memory and processor time."""
