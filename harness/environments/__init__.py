"""The environments in which a cluster can run."""
