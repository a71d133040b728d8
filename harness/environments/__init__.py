"""Where a cluster lives."""
