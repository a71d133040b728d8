"""A cluster in the deterministic simulation."""
