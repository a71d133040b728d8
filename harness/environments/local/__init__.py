"""A cluster of processes on this machine."""
