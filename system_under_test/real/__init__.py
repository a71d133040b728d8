"""The doors of a real machine: TCP, files, clocks, entropy, and a log of events."""
