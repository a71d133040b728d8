"""The interfaces of a node on a real machine: TCP, files, clocks, entropy, and an event log."""
